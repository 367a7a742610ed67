/* pieces.h -- dims that are dealt to ranks in blocks, and products beside the messages of these. */
#ifndef MPC_PIECES_H
#define MPC_PIECES_H

#include "ir.h"

/* Of a micro-batch, the sequences that a rank has. */
int64_t rank_sequences(const Module *m);

/* Into how many pieces the rule cuts the sequences of a micro-batch that a rank has; 1: it does not, since it does not
 * cut, or they cannot be divided.  What is left of its number, `else` is dealt in. */
int64_t batch_pieces(const Module *m, const ShardRule *rule);

/* Reshards from and to dims with Split.dealt become reshards of their blocks; products behind and before them are cut
 * into as many. */
void lower_dealt(Module *m, Func *f);

#endif
