/* rank_sums.h -- gradients with terms on different ranks along an axis. */
#ifndef MPC_RANK_SUMS_H
#define MPC_RANK_SUMS_H

#include "ir.h"

/* Each term of such a gradient is summed over the micro-batches by itself: see rank_sums.c.  Additions are in the
 * functions that compute the terms.  False: there are none. */
bool sum_terms_apart(Module *m);

#endif
