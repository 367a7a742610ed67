/* tradeoffs.h -- which sets of residuals can be saved, what each takes and what it costs: what `recompute auto` chooses
 * from. */
#ifndef MPC_TRADEOFFS_H
#define MPC_TRADEOFFS_H

#include "ir.h"

/* What is saved of each forward function.  Of one rank in a micro-batch: */
typedef struct {
    Saved *saved;
    double bytes; /* that are saved, over all layers */
    double flops; /* of what the backward computes again */
} Tradeoff;

typedef struct {
    int count;
    Tradeoff *at; /* fewer FLOPs first; each takes less memory than the one before */
} Tradeoffs;

/* Two stages of one program: after autodiff, and after zero, where the types say what a rank holds. */
typedef struct {
    Module *whole, *split;
} Stages;

/* What a policy saves, read off the program after `recompute`.  Names are those of `stages.whole`, the rest is in
 * `arena`. */
Tradeoff tradeoff_of_policy(Arena *arena, Stages stages, const Module *recomputed);

/* The best there are for layers, at most `most`; `around`: what has been recomputed by the policy for the rest. */
Tradeoffs find_tradeoffs(Arena *arena, Stages stages, const Module *around, int most);

#endif
