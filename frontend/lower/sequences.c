/* sequences.c -- ops where the batch is split, for the question whether the loss is a sum over sequences (check.c).
 *
 * Checked by types: with the batch split over a mesh axis, a sum over sequences is pending over that axis.  An op that
 * mixes sequences has no type there: its result is replaced by zeros of the same dims that are not split, and these
 * must not be read by the loss, nor by a sum that an update reads.  Nor must the loss read such a sum itself. */
#include "sequences.h"

/* --- What mixes sequences ------------------------------------------------------------------------------- */

static void note_mixed(Lower *l, const Value *value, Where where)
{
    Mixed *mixed = NEW(l->arena, Mixed);
    *mixed = (Mixed){ .value = value, .at = where.at, .help = where.help };
    *(l->check->last ? &l->check->last->next : &l->check->mixed) = mixed;
    l->check->last = mixed;
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

Value *mixed_in_place(Lower *l, const Value *value, Where where)
{
    Value *zeros = value ? zeros_like(l, &value->type) : NULL;
    if (zeros)
        note_mixed(l, zeros, where);
    return zeros;
}

/* A sum over the batch needs no micro-batch of its own, whatever becomes of it in the update. */
Value *checked_statistic(Lower *l, Value *value)
{
    const Statistic *s = l->noted.statistics;
    while (s && s->at.begin != l->b.loc.begin)
        s = s->next;
    if (!s || !value->type.partial)
        return value;
    push_value(l->arena, &l->check->summed, value);
    return mixed_in_place(l, value, (Where){ .at = l->b.loc });
}

/* --- Numbers beside a sum ------------------------------------------------------------------------------- */

/* Is it zero, whatever the data are? */
bool is_zero(const Value *value, int *steps)
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

/* A number is added to what is summed over sequences: to each of them it can be.  And a sum divides one by another. */
static const char *help_instead(OpKind kind, int nargs, Value *const args[])
{
    bool sums = false, others = false;
    for (int i = 0; i < nargs; i++) {
        if (args[i]->type.rank)
            return NULL;
        sums |= args[i]->type.partial != 0;
        others |= args[i]->type.partial == 0;
    }
    if (kind == OP_div && sums && !others)
        return "of weights, mean(x, weight = w): it divides by those of the whole batch";
    return op_table[kind].linear == ALL && sums && others ? "add first and take the mean of all, as mean(a + b)" : NULL;
}

/* Positions along the batch begin anew in each micro-batch, though each rank knows its own. */
bool counts_sequences(const Lower *l, const Attrs *attrs, int nargs)
{
    const bool counts =
        attrs->causal || attrs->window || (attrs->base != 0 && nargs == 1); /* not where they are given */
    return counts && attrs->seq == l->m->batch;
}

Op *checked_op(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    Op *op = add_to_sum(l, kind, attrs, nargs, args);
    if (op)
        return op;
    const char *help = help_instead(kind, nargs, args);
    Value **whole = NEW_ARRAY(l->arena, Value *, nargs + 1);
    for (int i = 0; i < nargs; i++)
        if (!(whole[i] = is_split(&args[i]->type) ? zeros_like(l, &args[i]->type) : args[i]))
            return NULL;
    op = try_build(&l->b, kind, attrs, nargs, whole);
    if (!op)
        note_complaint(l, (Where){ .at = l->b.loc, .help = help });
    for (int i = 0; op && i < op->results.count; i++)
        note_mixed(l, op->results.at[i], (Where){ .at = l->b.loc, .help = help });
    return op;
}
