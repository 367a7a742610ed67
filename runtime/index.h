/* index.h -- indices that kernels have found out of range. */
#ifndef MPC_RUNTIME_INDEX_H
#define MPC_RUNTIME_INDEX_H

#include <stdint.h>

/* Ends the trainer, saying so of one index. */
_Noreturn void rt_index_refuse(int64_t index, int64_t size, const char *dim, const char *where);

/* Ends the trainer if there was one since the start: what was computed with it means nothing. */
void rt_index_check(void);

#endif
