/* sequences.c -- is the loss a sum over sequences, so that micro-batches and parts of a batch can be computed alone?
 *
 * Checked by types: with the batch split over a mesh axis, a sum over sequences is pending over that axis.  An op that
 * mixes sequences has no type there: its result is replaced by zeros of the same dims that are not split, and these
 * must not be read by the loss, nor by a sum that an update reads.  Nor must the loss read such a sum itself.
 *
 * The loss of training has to be such a sum if a step has several micro-batches.  That of evaluation may differ from
 * it, by training(a, b); if it is none, the trainer evaluates only whole batches. */
#include "compose.h"

#include <stdlib.h>

/* --- What mixes sequences ------------------------------------------------------------------------------- */

static void note_mixed(Lower *l, const Value *value, const char *help)
{
    Mixed *mixed = NEW(l->arena, Mixed);
    *mixed = (Mixed){ .value = value, .at = l->b.loc, .help = help };
    *(l->last_mixed ? &l->last_mixed->next : &l->mixed) = mixed;
    l->last_mixed = mixed;
}

static bool is_split(const Type *type)
{
    bool split = type->partial != 0;
    for (int i = 0; i < type->rank; i++)
        split |= type->dim[i].split.count > 0;
    return split;
}

/* Zeros with these dims, not split. */
static Value *zeros_like(Lower *l, const Type *type)
{
    Attrs dims = { .dims = { .count = type->rank } };
    for (int i = 0; i < type->rank; i++) {
        dims.dims.dim[i] = type->dim[i];
        dims.dims.dim[i].split = (Split){ 0 };
    }
    Value *zero = emit_cast(l, emit_number(l, 0, type->dtype == BOOL ? I32 : type->dtype), type->dtype);
    return type->rank ? EMIT(l, OP_broadcast, dims, zero) : zero;
}

/* A sum over the batch needs no micro-batch of its own, whatever becomes of it in the update. */
Value *checked_statistic(Lower *l, Value *value)
{
    const Statistic *s = l->statistics;
    while (s && s->at.begin != l->b.loc.begin)
        s = s->next;
    if (!s || !value->type.partial)
        return value;
    push_value(l->arena, &l->summed, value);
    Value *zeros = zeros_like(l, &value->type);
    note_mixed(l, zeros, NULL);
    return zeros;
}

/* --- Numbers beside a sum ------------------------------------------------------------------------------- */

/* Is it zero, whatever the data are? */
static bool is_zero(const Value *value, int *steps)
{
    const Op *op = value->def;
    if (!op || --*steps < 0)
        return false;
    if (op->kind == OP_constant)
        return op->attrs.value == 0;
    const Linear linear = info(op)->linear;
    bool all = op->args.count > 0, any = false;
    for (int i = 0; i < op->args.count; i++) {
        const bool counts = linear == FIRST ? i == 0 : linear == REST ? i > 0 : linear != NEVER;
        const bool zero = counts && is_zero(arg(op, i), steps);
        any |= zero;
        all &= zero || !counts;
    }
    return any && (linear == EACH || all);
}

/* To a sum over sequences can be added: 0; and, if a batch is computed at once, what does not depend on it, a penalty
 * of weights say.  Such a term is replaced by one with the type of the sum. */
static Op *add_to_sum(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    const bool whole = l->m->train.batch <= l->m->train.microbatch;
    Value **terms = NEW_ARRAY(l->arena, Value *, nargs + 1), *sum = NULL;
    for (int i = 0; i < nargs; i++)
        sum = args[i]->type.partial ? args[i] : sum;
    if (op_table[kind].linear != ALL || !sum)
        return NULL;
    for (int i = 0; i < nargs; i++) {
        Op *product = NULL;
        if (!args[i]->type.partial && (whole || is_zero(args[i], &(int){ 100 })))
            product = try_build(&l->b, OP_mul, NO_ATTRS, 2, (Value *[]){ args[i], sum });
        terms[i] = product ? result(product) : args[i];
    }
    return try_build(&l->b, kind, attrs, nargs, terms);
}

/* A number is added to what is summed over sequences: to each of them it can be. */
static const char *help_adding(OpKind kind, int nargs, Value *const args[])
{
    bool sums = false, others = false;
    for (int i = 0; i < nargs; i++) {
        if (args[i]->type.rank)
            return NULL;
        sums |= args[i]->type.partial != 0;
        others |= args[i]->type.partial == 0;
    }
    return op_table[kind].linear == ALL && sums && others ? "add first and take the mean of all, as mean(a + b)" : NULL;
}

Op *checked_op(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    Op *op = add_to_sum(l, kind, attrs, nargs, args);
    if (op)
        return op;
    const char *help = help_adding(kind, nargs, args);
    Value **whole = NEW_ARRAY(l->arena, Value *, nargs + 1);
    for (int i = 0; i < nargs; i++)
        if (!(whole[i] = is_split(&args[i]->type) ? zeros_like(l, &args[i]->type) : args[i]))
            return NULL;
    op = try_build(&l->b, kind, attrs, nargs, whole);
    if (!op)
        complain(l, (Where){ .at = l->b.loc, .help = help }, "not a sum over sequences");
    for (int i = 0; op && i < op->results.count; i++)
        note_mixed(l, op->results.at[i], help);
    return op;
}

/* --- The check ------------------------------------------------------------------------------------------ */

/* What updates sum is read, too. */
static void keep_summed(Lower *l, Func *f)
{
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            if (index_of(&l->summed, op->results.at[i]) >= 0)
                add_result(l->m, f, op->results.at[i], (Port){ .kind = PORT_NONE });
}

/* The first that these functions read, for the loss or for updates; NULL: none. */
static const Mixed *find_mixed(Lower *l, Func *first, bool for_updates)
{
    Map read = { .arena = l->arena };
    for (Func *f = first; f; f = f->next) {
        const int results = f->results.count;
        if (for_updates)
            keep_summed(l, f);
        remove_dead_ops(f, &read);
        f->results.count = results;
    }
    const Mixed *mixed = l->mixed;
    while (mixed && !map_get(&read, mixed->value))
        mixed = mixed->next;
    return mixed;
}

static void complain_of_mixed(Lower *l, Func *first)
{
    const Mixed *mixed = l->checks_evaluation ? NULL : find_mixed(l, first, true), *by_loss = NULL;
    if (mixed || l->checks_evaluation)
        by_loss = find_mixed(l, first, false);
    l->mixes_in_update = mixed && !by_loss;
    mixed = by_loss ? by_loss : mixed;
    if (mixed && !l->mixes)
        complain(l, (Where){ .at = mixed->at, .help = mixed->help }, "not a sum over sequences");
}

/* Lowers the model with the batch split over an axis of its own; sets l->mixes, and where. */
static void check_variant(Lower *l)
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
    l->mixes = false;
    l->mixes_at = l->model->name_loc;
    l->mixes_help = NULL;
    l->mixed = l->last_mixed = NULL;
    l->summed = (Values){ 0 };
    Func *last = m->funcs;
    while (last->next)
        last = last->next;
    Func *f = lower_model(l, AS_CHECK);
    complain_of_mixed(l, last->next);
    const Value *loss = !l->mixes && f->results.count ? f->results.at[0] : NULL;
    l->mixes |= !loss || ((loss->type.partial != 1 || loss->type.by != BY_SUM) && !is_zero(loss, &(int){ 100 }));
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
    const char *help = arena_text(l->arena, "%s%smicrobatch = %lld", l->mixes_help ? l->mixes_help : "",
                                  l->mixes_help ? ", or " : "", (long long)(count * each));
    complain(l, (Where){ .at = l->mixes_at, .help = help },
             "%s is not a sum over sequences, so %lld micro-batches of %lld%s cannot be summed",
             l->mixes_in_update     ? "what an update reads"
             : l->checks_evaluation ? "the loss of evaluation"
                                    : "the loss",
             (long long)count, (long long)each, ranks > 1 ? " on each rank of the batch" : "");
}

void check_sum_over_sequences(Lower *l)
{
    Module *m = l->m;
    const bool splits = m->batch && m->train.batch > m->train.microbatch;
    if (!m->batch || m->train.batch == 1)
        return;
    if (splits)
        check_variant(l);
    if (splits && l->mixes)
        refuse_micro_batches(l);
    if (splits && (l->mixes || !l->is_evaluated_otherwise))
        return;
    l->checks_evaluation = true;
    check_variant(l);
    if (splits && l->mixes)
        refuse_micro_batches(l);
    else if (l->mixes)
        m->mixes = where_text(l, l->mixes_at);
    l->checks_evaluation = l->mixes = false;
}
