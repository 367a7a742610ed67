/* slopes.h -- compares the gradient of each parameter with the slope of the loss in forward mode. */
#ifndef MPC_SLOPES_H
#define MPC_SLOPES_H

#include "ir.h"

#include <stdio.h>

/* For each parameter, the derivative of the loss of the whole batch along a random direction. */
typedef struct {
    int count;
    struct Slope *at;
} Slopes;

/* The module must have a model and no step yet.  False, after reporting to m->diags, if it cannot be run. */
bool find_slopes(Module *m, Slopes *slopes);

/* Do the total gradients in the step of `m`, before clipping, give the same slopes?  Writes those that differ to
 * `report`.  `before`: the text of the module that the slopes were computed from. */
bool slopes_agree(Module *m, const Slopes *slopes, const char *before, FILE *report);

#endif
