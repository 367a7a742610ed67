/* weight_loop.h -- divides the backward loop of a pipeline in one for activations and one for weights. */
#ifndef MPC_WEIGHT_LOOP_H
#define MPC_WEIGHT_LOOP_H

#include "ir.h"

/* *loop becomes the loop for the gradients that are carried; the loop for the others is returned, and comes right after
 * it.  NULL: all are carried, and nothing changes. */
Op *divide_backward(Module *m, Func *caller, Op **loop);

#endif
