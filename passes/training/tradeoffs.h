/* tradeoffs.h -- sets of residuals to save, with their bytes and the FLOPs to recompute the rest: the candidates of
 * `recompute auto`.  What is saved is on the device or, if activations are offloaded, away. */
#ifndef MPC_TRADEOFFS_H
#define MPC_TRADEOFFS_H

#include "pipeline_kept.h"

typedef struct {
    SavedValues *saved;
    double bytes; /* of the saved values: of each function, on the rank that keeps most of it */
    double flops; /* that the backward recomputes, over all layers, in one micro-batch */
    double moved; /* bytes that are away, which `bytes` does not count */
} Tradeoff;

typedef struct {
    int count;
    Tradeoff *at;   /* of lower cost first, each with fewer bytes than the one before */
    double forward; /* FLOPs of the layers' forward, in one micro-batch */
} Tradeoffs;

/* One program twice: after autodiff, and after zero, where types tell what a rank holds.  `kept`: how often. */
typedef struct {
    Module *whole, *split;
    ResidualCopies kept;
} Programs;

/* The set that a policy saves, read off the program after `recompute`.  Names belong to `programs.whole`, the rest is
 * in `arena`. */
Tradeoff tradeoff_of_policy(Arena *arena, Programs programs, const Module *recomputed);

/* The Pareto front for layers, at most `most` sets.  `around`: a program after `recompute`, for the other functions.
 * `price`: a byte that is away costs as much as so many recomputed FLOPs; STAYS: nothing is away. */
enum { STAYS = -1 };
Tradeoffs find_tradeoffs(Arena *arena, Programs programs, const Module *around, double price, int most);

#endif
