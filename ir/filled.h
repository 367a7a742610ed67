/* filled.h -- experts: an upper bound of the share of rows that a dispatch fills with tokens. */
#ifndef MPC_FILLED_H
#define MPC_FILLED_H

#include "ir.h"

const Op *filled_by(Module *m, Name dim); /* the op that fills rows along the dim; NULL: none does */

/* Tokens make `choices` choices, each of one of `experts` experts.  An expert has `slots` slots for them in each of
 * `rounds` rounds. */
typedef struct {
    int64_t choices, experts, slots, rounds;
} FilledRows;
FilledRows filled_rows(const Op *fills);
double filled_share(const Op *fills); /* the share of rows with a token, if no token is dropped; at most 1 */

/* As op_flops(), but without products of rows that stay empty: they are no work of the model. */
double filled_flops(Module *m, const Op *op);

#endif
