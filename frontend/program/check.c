/* check.c -- checks that the loss is a sum over sequences, if a step has several micro-batches.  The loss of
 * evaluation may differ from that of training, by training(a, b); if it is none, the trainer evaluates only whole
 * batches.
 */
#include "program.h"
#include "sequences.h"

static void refuse_micro_batches(Lower *l, const Sequences *found)
{
    const Module *m = l->m;
    const int64_t ranks = l->data_ranks, count = m->train.batch / m->train.microbatch,
                  each = m->train.microbatch / ranks;
    const char *help = arena_text(l->arena, "%s%smicrobatch = %lld", found->help ? found->help : "",
                                  found->help ? ", or " : "", (long long)(count * each));
    complain(l, (Where){ .at = found->at, .help = help },
             "%s is not a sum over sequences, so %lld micro-batches of %lld%s cannot be summed",
             found->in_update  ? "what an update reads"
             : l->role == EVAL ? "the loss of evaluation"
                               : "the loss",
             (long long)count, (long long)each, ranks > 1 ? " on each rank of the batch" : "");
}

void check_sum_over_sequences(Lower *l, const Func *f)
{
    Module *m = l->m;
    const bool splits = m->train.batch > m->train.microbatch, evaluates = l->role == EVAL;
    if (!m->batch || (evaluates ? !l->is_evaluated_otherwise : l->is_evaluated_otherwise && !splits))
        return;
    const Sequences found = find_sequences(l, f, splits && !evaluates);
    if (splits && found.mixes)
        refuse_micro_batches(l, &found);
    else if (found.mixes && m->train.batch > 1)
        m->mixes = where_text(l, found.at);
    m->auxiliary = found.auxiliary;
}
