/* means.c -- means that divide by what the data say: by weights, or, of a cross_entropy with labels that may be
 * ignored, by the number of other labels. */
#include "functions.h"

Value *unlabelled(Lower *l, Value *value)
{
    const Entropy *known = find_labelled(l, value);
    return known && !known->is_plain ? EMIT(l, OP_reorder, NO_ATTRS, value) : value;
}

/* --- By labels ---------------------------------------------------------------------------------- */

/* The number of labels that are not ignored. */
static Value *count_labels(Lower *l, const Entropy *entropy, Names dims)
{
    Value *labels = import_value(l, l->frame, entropy->labels, entropy->frame);
    Value *counts = EMIT(l, OP_ne, NO_ATTRS, labels, emit_number(l, entropy->ignore, I32));
    return sum_over(l, emit_cast(l, counts, F32), dims);
}

/* A divisor that depends on the data: in training, a parameter, which the step sums over the micro-batches beforehand;
 * in TOTALS, a result of @totals; in EVAL both, since the trainer sums it over all that it evaluates. */
static Value *total_of_batch(Lower *l, Value *count)
{
    if (count && l->role != MODEL)
        push_value(l->arena, &l->now.counts, count);
    if (l->role == TOTALS)
        return count;
    Port port = { .kind = PORT_TOTAL, .of = intern_format(l->m, "%d", l->now.total_count) };
    Value *total = new_port(l, intern_format(l->m, "total.%d", l->now.total_count++), scalar_type(F32), port);
    push_named(l, l->frame, &l->frame->totals, total);
    return total;
}

static bool is_over_batch(const Lower *l, Names dims)
{
    return l->m->batch && has_name(&dims, l->m->batch) && l->role != PREDICT && l->role != OUTPUTS;
}

/* Divides by the number of labels. */
static Value *mean_of_entropy(Lower *l, const Entropy *entropy, Value *x, Names dims, Loc at)
{
    const bool over_batch = is_over_batch(l, dims);
    if (!entropy->labels)
        return complain(l, (Where){ .at = at, .help = "compute them before it" },
                        "a mean of cross_entropy counts its labels, which are computed inside 'repeat' or 'scan'"),
               NULL;
    if (over_batch && dims.count < x->type.rank)
        return complain(
                   l,
                   (Where){ .at = at, .help = "take the mean over all dims, or only over dims other than the batch" },
                   "a mean of cross_entropy over '%s' must be over all of %s, since it counts labels of the whole "
                   "batch",
                   l->m->batch, dims_text(l, &x->type)),
               NULL;
    if (over_batch && l->frame->outer)
        return complain(l, (Where){ .at = at, .help = "return the cross_entropy, and take its mean after the repeat" },
                        "a mean of cross_entropy over '%s' cannot be taken inside 'repeat' or 'scan'", l->m->batch),
               NULL;
    Value *total = over_batch && l->role == MODEL ? NULL : count_labels(l, entropy, dims);
    total = over_batch ? total_of_batch(l, total) : total;
    if (!over_batch || l->role != EVAL)                                       /* where the trainer sees to it */
        total = EMIT(l, OP_maximum, NO_ATTRS, total, emit_number(l, 1, F32)); /* without labels, the mean is 0 */
    return EMIT(l, OP_div, NO_ATTRS, sum_over(l, x, dims), total);
}

static Value *mean_by_labels(Lower *l, Value *x, Names dims, Loc at)
{
    Entropy *known = find_labelled(l, x);
    for (Entropy *same = known; same; same = same->from)
        same->is_averaged = true;
    return known && !known->is_plain ? mean_of_entropy(l, known, x, dims, at) : mean_over(l, x, dims);
}

/* --- With weights ------------------------------------------------------------------------------- */

/* Can the whole batch have one sum of weights for this mean? */
static bool has_one_total(Lower *l, const Value *x, Names dims, Loc at)
{
    if (dims.count < x->type.rank)
        return complain(
            l, (Where){ .at = at, .help = "take the mean over all dims, or only over dims other than the batch" },
            "a mean with weights over '%s' must be over all of %s, since it divides by weights of the whole batch",
            l->m->batch, dims_text(l, &x->type));
    if (l->frame->outer)
        complain(l, (Where){ .at = at, .help = "take it after the repeat" },
                 "a mean with weights over '%s' cannot be taken inside 'repeat' or 'scan'", l->m->batch);
    return !l->frame->outer;
}

static Value *weighted_mean(Lower *l, Value *x, Value *weight, Names dims, Loc at)
{
    const bool varies = is_over_batch(l, dims) && find_dim(&weight->type, l->m->batch) >= 0;
    Names own = { 0 }, lacking = { 0 };
    if (varies && !has_one_total(l, x, dims, at))
        return NULL;
    for (int i = 0; i < dims.count; i++)
        add_name(find_dim(&weight->type, dims.name[i]) >= 0 ? &own : &lacking, dims.name[i]);
    weight = EMIT(l, OP_stop_gradient, NO_ATTRS, emit_f32(l, weight));
    Value *sum = sum_over(l, EMIT(l, OP_mul, NO_ATTRS, emit_f32(l, x), weight), dims);
    Value *total = varies && l->role == MODEL ? NULL : sum_over(l, weight, own);
    if (total && lacking.count)
        total = EMIT(l, OP_mul, NO_ATTRS, total, emit_number(l, count_over(l, x, lacking), F32));
    total = varies ? total_of_batch(l, total) : total;
    if (!varies || l->role != EVAL) { /* where the trainer sees to it */
        Value *is_none = EMIT(l, OP_eq, NO_ATTRS, total, emit_number(l, 0, F32));
        total = EMIT(l, OP_where, NO_ATTRS, is_none, emit_number(l, 1, F32), total);
    }
    return EMIT(l, OP_div, NO_ATTRS, sum, total);
}

/* The weights of a mean: over dims of x. */
static Value *weight_argument(Lower *l, const Arguments *a)
{
    const Ast *ast = a->keyword[0]->child;
    const Operand operand = lower_expr(l, ast);
    set_place(l, a->call->name_loc);
    if (operand.kind == WRONG)
        return NULL;
    if (operand.kind == TENSOR && !dims_lacking(&operand.value->type, &a->x[0]->type).count)
        return emit_cast(l, operand.value, is_float(operand.value->type.dtype) ? operand.value->type.dtype : F32);
    return complain(l, (Where){ .at = ast->loc, .also = { a->ast[0]->loc } },
                    "'weight' must be over dims of %s, not %s", dims_text(l, &a->x[0]->type),
                    operand.kind == NUMBER ? "a number" : dims_text(l, &operand.value->type)),
           NULL;
}

/* An input, perhaps cast. */
static bool is_input(Lower *l, Value *value)
{
    while (value->def && value->def->kind == OP_cast)
        value = arg(value->def, 0);
    return input_viewed_by(l, value) != NULL;
}

/* A mean of a cross_entropy times weights of the data divides by the number of all, which may not be meant. */
static void warn_of_weights(Lower *l, const Arguments *a)
{
    const Op *op = a->x[0]->def;
    for (int i = 0; op && op->kind == OP_mul && i < 2; i++) {
        const Entropy *known = find_labelled(l, arg(op, i));
        if (known && known->is_entropy && is_input(l, arg(op, 1 - i)) && l->role == MODEL)
            warn_at(l->diags,
                    (Where){ .at = a->ast[0]->loc, .help = "mean(x, weight = w) divides by the sum of weights" },
                    "this mean divides by the number of all elements, whatever their weights");
    }
}

CALL(mean)
{
    Names over = dims_or_all(l, a);
    for (int i = 0; i < over.count; i++)
        if (over.name[i] != l->m->batch && varies_by_micro_batch(l, over.name[i]))
            return complain(l, (Where){ .at = a->call->name_loc, .help = "sum(...)" },
                            "a mean over '%s' would depend on the size of the micro-batch", over.name[i]),
                   wrong;
    if (!a->keyword[0]) {
        warn_of_weights(l, a);
        return tensor_operand(mean_by_labels(l, a->x[0], over, a->call->name_loc));
    }
    Value *weight = weight_argument(l, a);
    return tensor_operand(weight ? weighted_mean(l, a->x[0], weight, over, a->call->name_loc) : NULL);
}
