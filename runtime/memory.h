/* memory.h -- the arena of a trainer: one allocation, as the compiler planned it. */
#ifndef MPC_RUNTIME_MEMORY_H
#define MPC_RUNTIME_MEMORY_H

#include "state.h"

/* Zeroed, 2 MB-aligned.  Ends the trainer with planned and available bytes where it does not fit. */
char *rt_arena_map(const Rt *rt);

void rt_memory_print(const Rt *rt); /* "memory: 1.53 GB planned (...)", on stderr */

/* What a trainer of this plan holds on the device: the arena, and the workspaces of products and collectives. */
int64_t rt_memory_bytes(const Rt *rt);

#endif
