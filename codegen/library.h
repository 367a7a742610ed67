/* library.h -- what the files that call the runtime's kernels share. */
#ifndef MPC_LIBRARY_H
#define MPC_LIBRARY_H

#include "names.h"

int64_t stride_along(const Value *value, Name dim);                   /* 0 if it does not have the dim */
char *numbers_text(Module *m, int count, const int64_t numbers[]);    /* "(const int64_t[]){ 8, 1024 }" */
char *call_text(Module *m, const char *function, int nitems, const char *const items[]); /* "f(a, b);" */

char *call_place(Module *m, const Op *op, const char *const operand[], const char *scratch);
char *call_concat(Module *m, const Op *op, const char *const operand[], const char *scratch);

#endif
