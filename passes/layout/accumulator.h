/* accumulator.h -- carried values that a loop only adds to. */
#ifndef MPC_ACCUMULATOR_H
#define MPC_ACCUMULATOR_H

#include "ir.h"

/* The op by which the function adds to its i-th parameter, if it returns the sum as its i-th result, perhaps in another
 * dtype, and does nothing else with either; else NULL. */
const Op *accumulating(const Func *f, int i);

#endif
