/* accumulator.h -- carried values that a loop only adds to. */
#ifndef MPC_ACCUMULATOR_H
#define MPC_ACCUMULATOR_H

#include "ir.h"

/* Does the function add to its i-th parameter, and return the sum as its i-th result, and nothing else with either? */
bool is_accumulator(const Func *f, int i);

#endif
