/* filled.h -- dims of rows that a dispatch fills, mostly in part: slots of experts. */
#ifndef MPC_FILLED_H
#define MPC_FILLED_H

#include "ir.h"

const Op *filled_by(Module *m, Name dim); /* the op that fills rows along the dim; NULL: none does */

/* A queue: so many choices of so many experts, for each of which there are so many slots in each round. */
typedef struct {
    int64_t choices, experts, slots, rounds;
} Filled;
Filled filled_rows(const Op *fills);
double filled_share(const Op *fills); /* of all rows, if none is dropped that has a slot: at most 1 */

/* As op_flops; but a product has of such rows as many as can be filled, one for each choice: the others are no work of
 * the model. */
double filled_flops(Module *m, const Op *op);

#endif
