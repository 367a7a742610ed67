/* overlap.h -- shared by the files of the overlap pass. */
#ifndef MPC_OVERLAP_H
#define MPC_OVERLAP_H

#include "ir.h"
#include "map.h"

/* The op after the message that begins with `first`. */
Op *after_message(const Op *first);

/* Starts the gathers of weights in the body f of a loop one iteration early: prefetch.c. */
Map find_only_calls(Module *m); /* of functions, by their names */
void prefetch_weights(Module *m, Func *f, const Map *only_calls);

#endif
