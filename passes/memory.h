/* memory.h -- where every value lies: memory.c plans it, order.c sees to it that whoever reads can read there. */
#ifndef MPC_MEMORY_H
#define MPC_MEMORY_H

#include "ir.h"

/* Gives every value its place: Value.storage, Func.frame, {frame=...} of calls. */
void plan_memory(Module *m);

#endif
