/* slots.h -- looks through a whole file: for dims of slots, whose sizes calls compute, and for records. */
#ifndef MPC_SLOTS_H
#define MPC_SLOTS_H

#include "lowering.h"

/* An argument of a call of that function; NULL: it has none, or is no such call. */
const Ast *argument_of(const Ast *call, const char *function, int number);

/* Does a call of dispatch compute the size of this dim?  NULL: of any. */
bool holds_slots(const Lower *l, const char *name);
void forget_slots(Lower *l); /* their sizes */

bool declares_records(const Lower *l); /* is_fed_records of the whole model, of which all inputs may not be known yet */

#endif
