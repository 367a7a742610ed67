/* sequences.h -- finds whether the loss of a lowered model is a sum over sequences, and an output of one sequence. */
#ifndef MPC_SEQUENCES_H
#define MPC_SEQUENCES_H

#include "elaborate/lowering.h"

typedef struct {
    bool mixes;       /* it is not */
    bool in_update;   /* or rather what an update reads is not */
    Loc at;           /* where */
    const char *help; /* NULL: none but another micro-batch */
    Name auxiliary;   /* where the loss reads the balance of experts, "moe.mdl:24:9"; NULL: nowhere */
} Sequences;

/* Of the function that was lowered last, its loss, and, if `with_updates`, the sums that updates read. */
Sequences find_sequences(Lower *l, const Func *f, bool with_updates);

/* Of OUTPUTS, which was lowered last: where one of its results depends on other sequences of a micro-batch. */
bool mixes_sequences(Lower *l, const Func *f, const Value *result, Loc *at);

#endif
