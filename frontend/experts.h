/* experts.h -- mixtures of experts: dims whose sizes calls compute, and counts of what these do; see experts.c, load.c.
 */
#ifndef MPC_EXPERTS_H
#define MPC_EXPERTS_H

#include "lowering.h"

Operand largest_of(Lower *l, Operand chosen); /* the elements that a call of top_k chose; WRONG: it is none */

/* An argument of a call of that function; NULL: it has none, or is no such call. */
const Ast *argument_of(const Ast *call, const char *function, int number);

/* Does a call of dispatch compute the size of this dim?  NULL: of any. */
bool holds_slots(const Lower *l, const char *name);
void forget_slots(Lower *l); /* their sizes */

/* Counts the load of a dispatch.  room: its slots, of all rounds; `drops`: a queue may be longer. */
void count_load(Lower *l, Value *chosen, Value *place, Dim experts, double room, Name slots, bool rounds, bool drops);

#endif
