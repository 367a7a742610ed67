/* slopes.h -- compares the gradient of each parameter with the slope of the loss, which forward mode gives. */
#ifndef MPC_SLOPES_H
#define MPC_SLOPES_H

#include "ir.h"

#include <stdio.h>

/* By how much the loss of the whole batch changes where one parameter moves along a random direction, of each
 * parameter. */
typedef struct {
    int count;
    struct Slope *at;
} Slopes;

/* Of a module that has a model and no step yet.  False, after reporting to m->diags, if it cannot be run. */
bool find_slopes(Module *m, Slopes *slopes);

/* The total gradients in the step of `m`, before they are clipped, give the same slopes; false after telling `report`
 * of each that does not.  `before`: the text of the module that the slopes are of. */
bool slopes_agree(Module *m, const Slopes *slopes, const char *before, FILE *report);

#endif
