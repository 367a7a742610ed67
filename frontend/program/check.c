/* check.c -- is the loss a sum over sequences?  The model is lowered once more, with the batch split over an axis of
 * its own: see sequences.c.
 *
 * The loss of training has to be such a sum if a step has several micro-batches.  That of evaluation may differ from
 * it, by training(a, b); if it is none, the trainer evaluates only whole batches. */
#include "lower/sequences.h"
#include "program.h"

#include <stdlib.h>

static void mark(Map *read, const Value *value) { map_put(read, value, read); }

/* The operands of ops with a result that is read. */
static void mark_operands(const Func *f, Map *read)
{
    for (const Op *op = f->last; op; op = op->prev) {
        bool is_read = false;
        for (int i = 0; i < op->results.count && !is_read; i++)
            is_read = map_get(read, op->results.at[i]) != NULL;
        for (int i = 0; i < op->args.count && is_read; i++)
            mark(read, arg(op, i));
    }
}

/* What is read in `f`, of whose results its caller is known to read some; NULL: all are read.  What a turn of a loop
 * reads, the one before it has left. */
static void mark_func(const Func *f, const Op *caller, Map *read)
{
    for (int i = 0; i < f->results.count; i++)
        if (!caller || i >= caller->results.count || map_get(read, caller->results.at[i]))
            mark(read, f->results.at[i]);
    for (bool again = true; again;) {
        again = false;
        mark_operands(f, read);
        for (int i = 0; caller && i < caller->attrs.carried; i++)
            if (map_get(read, f->params.at[i]) && !map_get(read, f->results.at[i])) {
                mark(read, f->results.at[i]);
                again = true;
            }
    }
}

/* What these functions read for the loss, or also for updates.  Callers are behind what they call. */
static Map find_read(Lower *l, const Func *first, bool for_updates)
{
    Map read = { .arena = l->arena }, callers = { .arena = l->arena };
    int count = 0;
    for (const Func *f = first; f; f = f->next, count++)
        for (Op *op = f->first; op; op = op->next)
            if (op->attrs.callee)
                map_put(&callers, op->attrs.callee, op);
    const Func **funcs = NEW_ARRAY(l->arena, const Func *, count + 1);
    for (const Func *f = first, **end = funcs; f; f = f->next)
        *end++ = f;
    for (int i = 0; i < l->check->summed.count && for_updates; i++)
        mark(&read, l->check->summed.at[i]);
    for (int i = count - 1; i >= 0; i--)
        mark_func(funcs[i], map_get(&callers, funcs[i]->name), &read);
    return read;
}

static const Mixed *first_read(const Lower *l, const Map *read)
{
    const Mixed *mixed = l->check->mixed;
    while (mixed && !map_get(read, mixed->value))
        mixed = mixed->next;
    return mixed;
}

static void look_at_read(Lower *l, Func *first)
{
    Map read = { 0 };
    const Mixed *by_update = NULL;
    if (!l->check->of_evaluation) {
        read = find_read(l, first, true);
        by_update = first_read(l, &read);
    }
    read = find_read(l, first, false);
    const Mixed *by_loss = first_read(l, &read), *mixed = by_loss ? by_loss : by_update;
    l->check->mixes_in_update = mixed && !by_loss;
    if (mixed && !l->check->mixes) {
        l->check->mixes = true;
        l->check->at = mixed->at;
        l->check->help = mixed->help;
    }
    for (int i = 0; i < l->check->balances.count && !l->check->auxiliary; i++)
        if (map_get(&read, l->check->balances.at[i]))
            l->check->auxiliary = where_text(l, l->check->balances.at[i]->def->loc);
}

/* Lowers the model with the batch split over an axis of its own. */
static void check_variant(Lower *l, bool of_evaluation)
{
    Module *m = l->m;
    int fresh = m->fresh;
    char *unread = NULL;
    size_t size;
    Diags silent = { .arena = l->arena, .source = l->diags->source, .out = open_memory(&unread, &size) };
    m->diags = &silent;
    const int naxes = m->naxes;
    const Name axis = m->axis[0];
    const int64_t ranks = m->axis_size[0];
    m->naxes = 1;
    m->axis[0] = m->batch;
    m->axis_size[0] = 1;
    l->check = NEW(l->arena, SequenceCheck);
    *l->check = (SequenceCheck){ .of_evaluation = of_evaluation, .at = l->model->name_loc };
    Func *last = m->funcs;
    while (last->next)
        last = last->next;
    Func *f = lower_model(l, AS_CHECK);
    look_at_read(l, last->next);
    const Value *loss = !l->check->mixes && f->results.count ? f->results.at[0] : NULL;
    l->check->mixes |= !loss || ((loss->type.partial != 1 || loss->type.by != BY_SUM) && !is_zero(loss, &(int){ 100 }));
    while (last->next)
        remove_func(m, last->next);
    m->naxes = naxes;
    m->axis[0] = axis;
    m->axis_size[0] = ranks;
    m->fresh = fresh;
    m->diags = l->diags;
    fclose(silent.out);
    free(unread);
    l->variant = AS_MODEL;
}

static void refuse_micro_batches(Lower *l)
{
    const Module *m = l->m;
    const int64_t ranks = l->data_ranks, count = m->train.batch / m->train.microbatch,
                  each = m->train.microbatch / ranks;
    const char *help = arena_text(l->arena, "%s%smicrobatch = %lld", l->check->help ? l->check->help : "",
                                  l->check->help ? ", or " : "", (long long)(count * each));
    complain(l, (Where){ .at = l->check->at, .help = help },
             "%s is not a sum over sequences, so %lld micro-batches of %lld%s cannot be summed",
             l->check->mixes_in_update ? "what an update reads"
             : l->check->of_evaluation ? "the loss of evaluation"
                                       : "the loss",
             (long long)count, (long long)each, ranks > 1 ? " on each rank of the batch" : "");
}

void check_sum_over_sequences(Lower *l)
{
    Module *m = l->m;
    const bool splits = m->batch && m->train.batch > m->train.microbatch;
    if (!m->batch)
        return;
    if (splits)
        check_variant(l, false);
    if (!splits || (l->is_evaluated_otherwise && !l->check->mixes))
        check_variant(l, true);
    if (splits && l->check->mixes)
        refuse_micro_batches(l);
    else if (l->check->mixes && m->train.batch > 1)
        m->mixes = where_text(l, l->check->at);
    m->auxiliary = l->check->auxiliary;
}
