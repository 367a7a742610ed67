/* totals.h -- totals of the model: its size, its work. */
#ifndef MPC_TOTALS_H
#define MPC_TOTALS_H

#include "ir/cost/cost.h"

typedef struct {
    int64_t parameters;        /* trainable numbers, without padding */
    int64_t tensors;           /* in a checkpoint, where each copy of a repeat counts */
    int64_t micro, batch, seq; /* micro-batches a step, sequences in one, tokens in a sequence */
    double flops;              /* a step, by the convention below */
} Totals;

/* FLOPs are those of PaLM (arXiv 2204.02311, appendix B) and llm.c: products and attention of the forward pass, full
 * squares even where attention is causal, times 3 for forward and backward, over all micro-batches.  Recomputation in
 * the backward pass is not counted. */
#define FLOPS_CONVENTION                                                                                               \
    "3 x (products and attention of the forward pass), causal attention as full; recomputation not counted"

Totals program_totals(Module *m);

/* The first bytes of the arena, which outlive a step. */
int64_t state_bytes(const Module *m);

#endif
