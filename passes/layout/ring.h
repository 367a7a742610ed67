/* ring.h -- ring attention: keys and values pass from rank to rank. */
#ifndef MPC_RING_H
#define MPC_RING_H

#include "ir.h"

/* In the space of an op whose keys pass by: splits them like the queries, along the ring. */
void split_keys(const Module *m, Op *op, Type *space);

/* Attention with {axis} becomes steps. */
void lower_rings(Module *m, Func *f);

#endif
