/* join.h -- loops that read what another loop makes slice by slice: see join.c, peel.c and together.c. */
#ifndef MPC_JOIN_H
#define MPC_JOIN_H

#include "ir.h"
#include "map.h"

/* The function of a plain loop over one dim, if nothing else calls it; else NULL. */
Func *body_of(const Module *m, const Map *caller, const Op *loop);

/* Does the loop read these stacks slice by slice along the dim, and nothing of them otherwise? */
bool reads_slices(const Op *loop, const Values *stacks, const Dim *dim);

/* The loop that reads first what the maker makes reads it whole, and a loop in its body reads the slices: its first
 * iteration becomes ops of f, and this returns true.  The callers are then others. */
bool peel_reader(Module *m, Func *f, const Map *caller, const Op *maker);

/* A loop behind a joined one has another in its body that reads the stacks of the joined one slice by slice, and
 * nothing of the iterations before: its next iteration becomes ops of f.  False: there is none. */
bool peel_next(Module *m, Func *f, const Map *caller, const Op *joined);

/* A loop of f that updates layers while it runs the forward pass of the first micro-batch runs that of others, too,
 * with `just_in_time 2`. */
void run_together(Module *m, Func *f);

/* Does the function move anything to the device? */
bool fetches_any(const Func *body);

#endif
