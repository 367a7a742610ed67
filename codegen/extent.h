/* extent.h -- bounds checks of emitted code: no access may exceed what the memory pass has planned.  Every access is
 * checked by its sizes and strides, in every compilation; a violation is reported as an internal error. */
#ifndef MPC_EXTENT_H
#define MPC_EXTENT_H

#include "ir/ir.h"

/* `dims` nested loops over memory: how often each turns, and by how many elements it moves on. */
typedef struct {
    int dims;
    int64_t size[2 * MAX_RANK + 4], stride[2 * MAX_RANK + 4];
} Access;

void add_access(Access *access, int64_t size, int64_t stride);

/* Does the access, from the first element of a value of this type that lies so, stay inside of the value? */
bool stays_inside(Module *m, const Op *op, Name name, const Type *type, const Storage *storage, const Access *access);

/* So many elements in one piece. */
bool holds(Module *m, const Op *op, const Value *value, int64_t count);

/* Do all values of the program lie inside their frames, and views inside what they are views of? */
bool check_plan(Module *m);

#endif
