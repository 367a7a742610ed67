/* filled.h -- dims of rows that a dispatch fills, mostly in part: slots of experts. */
#ifndef MPC_FILLED_H
#define MPC_FILLED_H

#include "ir/ir.h"

const Op *filled_by(Module *m, Name dim); /* the op that fills rows along the dim; NULL: none does */

/* As op_flops; but a product has of such rows as many as can be filled, one for each choice: the others are no work of
 * the model. */
double filled_flops(Module *m, const Op *op);

#endif
