/* compose.c -- built-in functions that are composed of primitive ops.
 *
 * They need no sharding rule or gradient of their own; the fuse pass turns them into row kernels.  The maximum that is
 * subtracted before an exponential cancels in the result, so it is wrapped in stop_gradient.
 *
 * Intermediate values are f32 for every train.precision: if terms cancel, as in the gradient of a norm, narrower ones
 * would leave only rounding errors.
 */
#include "compose.h"
#include "elaborate/slots.h"

#include <float.h>
#include <math.h>

static Value *times(Lower *l, Value *a, double b) { return two(l, OP_mul, a, emit_number(l, b, F32)); }

static Names only(Name dim) { return (Names){ 1, { dim } }; }

Value *sum_over(Lower *l, Value *x, Names dims) { return dims.count ? EMIT(l, OP_sum, (Attrs){ .over = dims }, x) : x; }

/* The number of elements of a mean: in training and evaluation, for a mean over the batch dim, that of the whole batch,
 * so that the sum of the micro-batches' means is the mean of the batch. */
double count_over(const Lower *l, const Value *x, Names dims)
{
    double count = 1;
    for (int i = 0; x && i < x->type.rank; i++) {
        const Dim *dim = &x->type.dim[i];
        bool whole = dim->name == l->m->batch && l->role != TOTALS && l->role != PREDICT;
        if (has_name(&dims, dim->name))
            count *= (double)(whole ? l->m->train.batch : dim->size);
    }
    return count;
}

Value *mean_over(Lower *l, Value *x, Names dims) { return times(l, sum_over(l, x, dims), 1 / count_over(l, x, dims)); }

/* x minus its maximum along the dims */
static Value *below_largest(Lower *l, Value *x, Names dims)
{
    x = emit_f32(l, x);
    Value *largest = one(l, OP_stop_gradient, EMIT(l, OP_max, (Attrs){ .over = dims }, x));
    return two(l, OP_sub, x, largest);
}

Value *softmax(Lower *l, Value *x, Names dims)
{
    Value *e = one(l, OP_exp, below_largest(l, x, dims));
    return two(l, OP_div, e, sum_over(l, e, dims));
}

Value *log_softmax(Lower *l, Value *x, Names dims)
{
    Value *z = below_largest(l, x, dims);
    return two(l, OP_sub, z, one(l, OP_log, sum_over(l, one(l, OP_exp, z), dims)));
}

/* Of minus infinities it is minus infinity. */
Value *logsumexp(Lower *l, Value *x, Names dims)
{
    x = emit_f32(l, x);
    Value *most = two(l, OP_maximum, EMIT(l, OP_max, (Attrs){ .over = dims }, x), emit_number(l, -FLT_MAX, F32));
    most = one(l, OP_stop_gradient, most);
    Value *sum = sum_over(l, one(l, OP_exp, two(l, OP_sub, x, most)), dims);
    return two(l, OP_add, one(l, OP_log, sum), most);
}

/* The mean along normalised dims, independent of the batch. */
static Value *mean_along(Lower *l, Value *x, Names dims)
{
    double size = 1;
    for (int i = 0; i < dims.count && x; i++)
        size *= (double)x->type.dim[find_dim(&x->type, dims.name[i])].size;
    return times(l, sum_over(l, x, dims), 1 / size);
}

static Value *over_root(Lower *l, Value *x, Value *variance, double eps)
{
    return two(l, OP_mul, x, one(l, OP_rsqrt, two(l, OP_add, variance, emit_number(l, eps, F32))));
}

/* x / sqrt(mean(x^2) + eps) */
Value *rmsnorm(Lower *l, Value *x, Names dims, double eps)
{
    x = emit_f32(l, x);
    return over_root(l, x, mean_along(l, one(l, OP_square, x), dims), eps);
}

/* Deviations from the mean add up to 0, so the variance has no gradient through the mean.  Stopping that gradient
 * leaves two sums over each row in the backward pass that do not depend on each other. */
Value *layernorm(Lower *l, Value *x, Names dims, double eps)
{
    x = emit_f32(l, x);
    Value *mean = mean_along(l, x, dims), *fixed = one(l, OP_stop_gradient, mean);
    Value *variance = mean_along(l, one(l, OP_square, two(l, OP_sub, x, fixed)), dims);
    return over_root(l, two(l, OP_sub, x, mean), variance, eps);
}

/* --- Attention without a kernel ---------------------------------------------------------------- */

static Value *both(Lower *l, Value *a, Value *b) { return a && b ? two(l, OP_mul, a, b) : a ? a : b; }

/* The mask of keys that queries see by their distance; NULL: all. */
static Value *near_keys(Lower *l, const Attrs *attrs, const Dim *seq, const Dim *key)
{
    if (!attrs->causal && !attrs->window)
        return NULL;
    Value *ahead = two(l, OP_sub, emit_iota(l, *key), emit_iota(l, *seq));
    Value *seen = attrs->causal ? two(l, OP_le, ahead, emit_number(l, 0, I32)) : NULL;
    if (!attrs->window)
        return seen;
    Value *width = emit_number(l, (double)attrs->window, I32);
    Value *near = two(l, OP_lt, attrs->causal ? one(l, OP_neg, ahead) : one(l, OP_abs, ahead), width);
    return both(l, seen, near);
}

/* softmax(x, dim) where a row may be all minus infinity, which gives zeros, or have a sink. */
static Value *softmax_of_some(Lower *l, Value *x, Name dim, Value *sinks)
{
    Value *least = sinks ? sinks : emit_number(l, -1e30, F32), *total;
    Value *most = one(l, OP_stop_gradient, two(l, OP_maximum, EMIT(l, OP_max, (Attrs){ .over = only(dim) }, x), least));
    x = one(l, OP_exp, two(l, OP_sub, x, most));
    total = sum_over(l, x, only(dim));
    total = sinks ? two(l, OP_add, total, one(l, OP_exp, two(l, OP_sub, sinks, most))) : total;
    return two(l, OP_div, x, two(l, OP_maximum, total, emit_number(l, 1e-30, F32)));
}

Value *attention(Lower *l, const Attrs *attrs, Value *q, Value *k, Value *v, Value *const segments[2], Value *bias,
                 Value *sinks)
{
    const Dim seq = q->type.dim[find_dim(&q->type, attrs->seq)], key = k->type.dim[find_dim(&k->type, attrs->key)];
    Value *scores = times(l, EMIT(l, OP_dot, (Attrs){ .over = only(attrs->feature) }, q, k), attrs->scale);
    if (attrs->softcap != 0)
        scores = times(l, EMIT(l, OP_tanh, NO_ATTRS, times(l, scores, 1 / attrs->softcap)), attrs->softcap);
    if (bias)
        scores = two(l, OP_add, scores, bias);
    Value *same = segments[0] ? two(l, OP_eq, segments[0], segments[1]) : NULL;
    Value *seen = both(l, near_keys(l, attrs, &seq, &key), same);
    if (seen)
        scores = EMIT(l, OP_where, NO_ATTRS, seen, scores, emit_number(l, -INFINITY, F32));
    Value *weights =
        bias || sinks ? softmax_of_some(l, scores, attrs->key, sinks) : softmax(l, scores, only(attrs->key));
    Value *y = EMIT(l, OP_dot, (Attrs){ .over = only(attrs->key) }, weights, v);
    return y ? reorder(l, y, &q->type) : NULL;
}

/* --- Cross-entropy, and the mean of it ------------------------------------------------------- */

/* Tokens are never negative. */
static bool may_ignore(Lower *l, Value *labels, double ignore)
{
    return labels && (ignore >= 0 || declares_records(l) || !input_viewed_by(l, labels));
}

/* Can the trainer check its range in the data?  See index_fits. */
static bool is_of_data(Lower *l, Value *index)
{
    const Op *op = index->def;
    if (op && op->kind == OP_where)
        return is_of_data(l, arg(op, 1)) && is_of_data(l, arg(op, 2));
    return (op && op->kind == OP_constant) || input_viewed_by(l, index);
}

/* y, with a check of the labels: a gather from zeros detects a label out of range like any gather.  Otherwise such a
 * label would be ignored silently. */
static Value *with_look(Lower *l, Value *y, Value *labels, Dim along, double ignore)
{
    Value *zeros = EMIT(l, OP_broadcast, ((Attrs){ .dims = { 1, { along } } }), emit_number(l, 0, F32));
    Value *is_ignored = two(l, OP_eq, labels, emit_number(l, ignore, I32));
    Value *index = EMIT(l, OP_where, NO_ATTRS, is_ignored, emit_number(l, 0, I32), labels);
    return two(l, OP_add, y, EMIT(l, OP_gather, ((Attrs){ .dim = along.name }), zeros, index));
}

/* Are all its elements places along the dim? */
static bool is_choice(const Value *index, Name dim)
{
    return index->def && index->def->kind == OP_top_k && index->def->attrs.dim == dim;
}

/* y, with a check of the index: a gather from zeros detects one out of range. */
static Value *with_check(Lower *l, Value *y, Value *index, Dim along)
{
    Value *zero = emit_number(l, 0, y ? y->type.dtype : F32);
    Value *zeros = EMIT(l, OP_broadcast, ((Attrs){ .dims = { 1, { along } } }), zero);
    return two(l, OP_add, y, EMIT(l, OP_gather, ((Attrs){ .dim = along.name }), zeros, index));
}

Value *one_hot(Lower *l, Value *index, Dim along)
{
    Value *y = emit_cast(l, two(l, OP_eq, index, emit_iota(l, along)), F32);
    const bool is_checked = is_choice(index, along.name) || is_of_data(l, index);
    return is_checked ? y : with_check(l, y, index, along);
}

/* Ranks and micro-batches need no messages for it, unlike for a gather. */
Value *gather_along(Lower *l, Value *x, Value *index, Dim along)
{
    const DType dtype = x->type.dtype;
    x = dtype == BOOL ? emit_cast(l, x, I32) : x;
    Value *is_it = two(l, OP_eq, index, emit_iota(l, along));
    Value *zero = emit_number(l, 0, x ? x->type.dtype : F32);
    Value *y = sum_over(l, EMIT(l, OP_where, NO_ATTRS, is_it, x, zero), only(along.name));
    y = is_choice(index, along.name) ? y : with_check(l, y, index, along);
    return dtype == BOOL ? emit_cast(l, y, BOOL) : y;
}

/* log(sum exp z) - z at the label, with z the logits minus their maximum */
Value *cross_entropy(Lower *l, Value *logits, Value *labels, Name dim, double ignore)
{
    Value *z = below_largest(l, logits, only(dim));
    Value *log_sum = one(l, OP_log, sum_over(l, one(l, OP_exp, z), only(dim)));
    Dim along = logits ? logits->type.dim[find_dim(&logits->type, dim)] : (Dim){ 0 };
    Value *is_label = two(l, OP_eq, labels, logits ? emit_iota(l, along) : NULL);
    Value *zero = emit_number(l, 0, F32);
    Value *y = two(l, OP_sub, log_sum, sum_over(l, EMIT(l, OP_where, NO_ATTRS, is_label, z, zero), only(dim)));
    if (logits && labels && !is_of_data(l, labels))
        y = with_look(l, y, labels, along, ignore);
    if (!may_ignore(l, labels, ignore)) {
        if (y)
            note_labels(l, (Entropy){ .entropy = y, .is_entropy = true, .is_plain = true });
        return y;
    }
    y = EMIT(l, OP_where, NO_ATTRS, two(l, OP_eq, labels, emit_number(l, ignore, I32)), zero, y);
    y = y ? reorder(l, y, &log_sum->type) : NULL;
    if (!y)
        return NULL;
    note_labels(l,
                (Entropy){ .entropy = y, .labels = labels, .frame = l->frame, .ignore = ignore, .is_entropy = true });
    return y;
}

Operand largest_of(Lower *l, Operand chosen)
{
    const Op *op = chosen.kind == TENSOR ? chosen.value->def : NULL;
    if (!op || op->kind != OP_top_k || op != l->b.func->last)
        return (Operand){ .kind = WRONG };
    const Type *x = &arg(op, 0)->type;
    return tensor_operand(gather_along(l, arg(op, 0), chosen.value, x->dim[find_dim(x, op->attrs.dim)]));
}
