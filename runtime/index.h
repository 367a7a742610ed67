/* index.h -- indices out of range, found by kernels. */
#ifndef MPC_RUNTIME_INDEX_H
#define MPC_RUNTIME_INDEX_H

#include <stdint.h>

/* Ends the trainer, reporting the index. */
_Noreturn void rt_index_refuse(int64_t index, int64_t size, const char *dim, const char *where);

/* Ends the trainer if a bad index was recorded since the start: results are invalid. */
void rt_index_check(void);

#endif
