/* memory.h -- how much memory a trainer holds on its device. */
#ifndef MPC_RUNTIME_MEMORY_H
#define MPC_RUNTIME_MEMORY_H

#include "state.h"

void rt_memory_print(const Rt *rt); /* "memory: 1.53 GB planned (...)", on stderr */

/* What a trainer of this plan holds on the device: the arena, and the workspaces of products and collectives. */
int64_t rt_memory_bytes(const Rt *rt);

#endif
