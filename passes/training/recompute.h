/* recompute.h -- what recompute.c (the pass) and tradeoffs.c (which sets of residuals there are) have to agree on. */
#ifndef MPC_RECOMPUTE_H
#define MPC_RECOMPUTE_H

#include "uses.h"

/* Does a loop run f once for each layer? */
bool is_layer(const Module *m, const Func *f);

/* What an op of f costs: a bias is a part of the product that it is added to.  uses: those of f. */
Family family_for_cost(const Func *f, const Uses *uses, const Op *op);

/* So many parameters of f are carried by the loop that runs it: its caller does not keep them. */
int carried_of(const Module *m, const Func *f);

#endif
