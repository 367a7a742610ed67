/* overlap.h -- shared by the files of the overlap pass. */
#ifndef MPC_OVERLAP_H
#define MPC_OVERLAP_H

#include "ir.h"

/* What follows the message that begins with `first`. */
Op *after_message(const Op *first);

/* Weights that have been started in the iterations of a loop, f, are started one iteration early: prefetch.c. */
void prefetch_weights(Module *m, Func *f);

#endif
