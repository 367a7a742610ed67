/* overlap.h -- shared by the files of the overlap pass. */
#ifndef MPC_OVERLAP_H
#define MPC_OVERLAP_H

#include "ir.h"
#include "map.h"

/* The op after the message that begins with `first`. */
Op *after_message(const Op *first);

/* The largest number of a bucket in the program. */
int64_t last_bucket(const Module *m);

/* Marks what the loop over micro-batches of a pipeline may start: early.c. */
void start_early(Module *m, Func *step);

/* Starts the gathers of weights in the body f of a loop one iteration early: prefetch.c. */
void prefetch_weights(Module *m, Func *f, const Map *callers);

#endif
