/* cleanup.h -- cleanup after a pass: common subexpressions, dead ops. */
#ifndef MPC_CLEANUP_H
#define MPC_CLEANUP_H

#include "ir.h"
#include "map.h"

/* The replacement of a value.  A pass that replaces many values in one walk over a function resolves each operand as it
 * reaches it: replace_uses would traverse the whole function for each. */
void resolve_all(const Map *instead, Values *values);

void share_equal(Func *f);
void note_equal(Func *f, Map *instead); /* the same; notes the replacement of each removed value */
void drop_dead(Func *f);                /* ops without a reader */
void drop_unreached(Module *m);         /* functions without a caller and without a role */

void inline_calls(Module *m); /* inlines PLAIN functions at each call that is not a loop */

#endif
