/* index.h -- indices that kernels have found out of range. */
#ifndef MPC_RUNTIME_INDEX_H
#define MPC_RUNTIME_INDEX_H

/* Ends the trainer if there was one since the start: what was computed with it means nothing. */
void rt_index_check(void);

#endif
