/* cleanup.h -- helpers that several passes run at their end: sharing of equal ops, removal of dead ones. */
#ifndef MPC_CLEANUP_H
#define MPC_CLEANUP_H

#include "ir.h"
#include "map.h"

/* Values that others take the place of.  A pass that goes through a function in order and replaces many looks each
 * operand up when it comes to it: replace_uses would go through all of the function each time. */
Value *resolve(const Map *instead, Value *value);
void resolve_all(const Map *instead, Values *values);

void note_read(Map *read, const Values *values); /* each value -> itself */

bool same_op(const Op *a, const Op *b); /* the same computation on the same operands */
void share_equal(Func *f);
void drop_dead(Func *f);        /* ops whose results nobody reads */
void drop_unreached(Module *m); /* functions that nobody calls and that have no role */

void inline_calls(Module *m); /* the bodies of PLAIN functions in the place of each call that is no loop */

#endif
