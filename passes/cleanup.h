/* cleanup.h -- what several passes do when they are done: share equal ops, drop dead ones. */
#ifndef MPC_CLEANUP_H
#define MPC_CLEANUP_H

#include "ir.h"

bool same_op(const Op *a, const Op *b); /* the same computation on the same operands */
void share_equal(Func *f);
void drop_dead(Func *f);        /* ops whose results nobody reads */
void drop_unreached(Module *m); /* functions that nobody calls and that have no role */

/* Puts the body of a `call` of a PLAIN function in its place. */
void inline_call(Module *m, Func *f, Op *call);
void inline_calls(Module *m); /* all of them */

#endif
