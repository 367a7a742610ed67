/* pieces.h -- dims that are dealt to ranks in blocks, and products beside the messages of these. */
#ifndef MPC_PIECES_H
#define MPC_PIECES_H

#include "ir.h"

/* Reshards from and to dims with Split.dealt become reshards of their blocks; products behind and before them are cut
 * into as many. */
void lower_dealt(Module *m, Func *f);

#endif
