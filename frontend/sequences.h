/* sequences.h -- is the loss a sum over sequences, so that micro-batches and parts of a batch can be computed alone? */
#ifndef MPC_SEQUENCES_H
#define MPC_SEQUENCES_H

#include "lowering.h"

/* A result of an op that mixes sequences, or a statistic, which the loss must not read. */
typedef struct Mixed {
    const Value *value;
    Loc at;
    const char *help; /* NULL: none */
    struct Mixed *next;
} Mixed;

/* What is found while the model is lowered AS_CHECK. */
typedef struct SequenceCheck {
    bool of_evaluation;   /* of the loss of evaluation, not of training */
    Mixed *mixed, *last;  /* in order */
    Values summed;        /* what updates read */
    Values balances;      /* results of balance() */
    bool mixes;           /* the loss is not a sum over sequences */
    bool mixes_in_update; /* or rather what an update reads */
    Loc at;               /* where */
    const char *help;     /* NULL: none but another micro-batch */
    Name auxiliary;       /* where the loss reads one of the balances; NULL: nowhere */
} SequenceCheck;

/* Reports it if the loss of training, or of evaluation, is none and a step has several micro-batches.  Notes in the
 * module where the loss of evaluation mixes the sequences of a batch, and where it reads the balance of experts. */
void check_sum_over_sequences(Lower *l);

/* --- In AS_CHECK: ----------------------------------------------------------------------------- */

Value *checked_statistic(Lower *l, Value *value); /* what an update reads in place of it */

bool is_zero(const Value *value, int *steps); /* whatever the data are?  steps: to look at most */

void note_complaint(Lower *l, Where where); /* in place of a message */

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
