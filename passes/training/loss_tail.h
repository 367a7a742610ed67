/* loss_tail.h -- the end of a model that acts on each position of a dim alone: its head and its loss, for chunk.c. */
#ifndef MPC_LOSS_TAIL_H
#define MPC_LOSS_TAIL_H

#include "ir.h"
#include "map.h"

/* A value is *wide* if it has both dims: logits, and values computed from each of them. */
typedef struct {
    Name dim, wide;
    Map ops;           /* those of the tail: op -> itself */
    const Op *head;    /* the product in it that makes the largest wide value; NULL: none, so there is no tail */
    const Op *blocked; /* the op that keeps wide values out of the tail, or that cannot be cut along `dim`; or NULL */
    const char *why;   /* of that op */
} LossTail;

/* Finds the tail of f.  It is convex: nothing outside depends on it and is read in it.  What is wide is read in it
 * alone, and no op of it needs another element along `dim`. */
LossTail find_loss_tail(Arena *arena, Module *m, const Func *f, Name dim, Name wide);

bool is_in_tail(const LossTail *tail, const Op *op);

/* The dim of the logits: that of the loss's cross_entropy, else the last dim that a product makes; NULL: none. */
Name dim_of_logits(const Module *m, const Func *f);

#endif
