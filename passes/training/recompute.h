/* recompute.h -- rules shared by recompute.c, the pass, and tradeoffs.c, which finds sets of residuals. */
#ifndef MPC_RECOMPUTE_H
#define MPC_RECOMPUTE_H

#include "uses.h"

/* Is f the body of a loop over layers?  Not of one over chunks of tokens, which is always recomputed. */
bool is_layer(const Module *m, const Func *f);

/* The family that decides whether an op of f may be recomputed: a bias belongs to its product.  uses: those of f. */
Family family_for_cost(const Func *f, const Uses *uses, const Op *op);

/* The number of parameters of f that its loop carries: its caller does not keep them. */
int carried_of(const Module *m, const Func *f);

#endif
