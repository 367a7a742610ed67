/* memory.h -- memory of a trainer on its device. */
#ifndef MPC_RUNTIME_MEMORY_H
#define MPC_RUNTIME_MEMORY_H

#include "state.h"

void rt_memory_print(Rt *rt); /* "memory: 1.53 GB planned (...)", on stderr; all ranks call it */

/* Bytes on the device: the arena, and the workspaces of products and collectives. */
int64_t rt_memory_bytes(const Rt *rt);

/* Those of each rank, owned by the caller.  All ranks call it. */
int64_t *rt_memory_of_ranks(Rt *rt);

#endif
