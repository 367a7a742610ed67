/* sequences.h -- ops while it is checked whether the loss is a sum over sequences, see sequences.c. */
#ifndef MPC_SEQUENCES_H
#define MPC_SEQUENCES_H

#include "emit.h"

/* --- In AS_CHECK: ----------------------------------------------------------------------------- */

Value *checked_statistic(Lower *l, Value *value); /* what an update reads in place of it */

bool is_zero(const Value *value, int *steps); /* whatever the data are?  steps: to look at most */

/* Zeros in place of what mixes sequences there; NULL if `value` is. */
Value *mixed_in_place(Lower *l, const Value *value, Where where);

/* Does an op with these operands count positions along the batch? */
bool counts_sequences(const Lower *l, const Attrs *attrs, int nargs);

/* In place of an op that has no type, since it mixes sequences, or that counts them; NULL after reporting. */
Op *checked_op(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[]);

/* --- In all variants: ------------------------------------------------------------------------- */

/* Of evaluation and sampling: what training alone does is left out. */
static inline bool evaluates(const Lower *l)
{
    return l->variant == AS_EVAL || l->variant == AS_PREDICT || (l->variant == AS_CHECK && l->check->of_evaluation);
}

#endif
