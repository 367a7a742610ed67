/* infer_views.c -- result types of views, concat and pad, library ops, calls and loops. */
#include "flight.h"
#include "infer.h"
#include "split_loop.h"

/* Finds the dim that {dim=...} names in the first operand. */
static int named_dim(Module *m, const Op *op)
{
    const Type *x = &arg(op, 0)->type;
    int at = op->attrs.dim ? find_dim(x, op->attrs.dim) : -1;
    if (at < 0)
        return (void)REFUSE(NULL, "%%%s has no dim '%s'", arg(op, 0)->name, op->attrs.dim ? op->attrs.dim : ""), -1;
    return at;
}

INFER(rename)
{
    const Type *x = &arg(op, 0)->type;
    int at = op->attrs.dim ? find_dim(x, op->attrs.dim) : -1;
    if (at < 0 || !op->attrs.to)
        return REFUSE(NULL, "rename needs a dim that %%%s has, and its new name", arg(op, 0)->name);
    if (find_dim(x, op->attrs.to) >= 0)
        return REFUSE(NULL, "%%%s already has a dim '%s'", arg(op, 0)->name, op->attrs.to);
    results[0] = *x;
    results[0].dim[at].name = op->attrs.to;
    return true;
}

INFER(slice)
{
    const Type *x = &arg(op, 0)->type;
    int at = named_dim(m, op);
    if (at < 0)
        return false;
    const Dim *dim = &x->dim[at];
    if (op->attrs.index < 0 || op->attrs.index >= (op->attrs.own ? local_size(m, dim) : dim->size))
        return REFUSE(NULL, "'%s' has no element %lld", op->attrs.dim, (long long)op->attrs.index);
    results[0] = without_dim(*x, op->attrs.dim);
    return true;
}

/* Is {dims=...} one dim, whole on each rank? */
static bool gives_whole_dim(Module *m, const Op *op)
{
    if (op->attrs.dims.count != 1)
        return REFUSE(NULL, "%s needs {dims=[name:size]}", info(op)->name);
    if (op->attrs.dims.dim[0].split.count)
        return REFUSE("local_slice its result", "%s gives all of '%s' to every rank", info(op)->name,
                      op->attrs.dims.dim[0].name);
    return true;
}

/* part and pad: is `shorter` a range of `longer`? */
static bool check_stretch(Module *m, const Op *op, const Dim *shorter, const Dim *longer)
{
    if (op->attrs.index < 0 || op->attrs.index > longer->size - shorter->size)
        return REFUSE(NULL, "%s: elements %lld to %lld of '%s', which has %lld", info(op)->name,
                      (long long)op->attrs.index, (long long)(op->attrs.index + shorter->size - 1), longer->name,
                      (long long)longer->size);
    return true;
}

INFER(part)
{
    int at = named_dim(m, op);
    const Dim *to = &op->attrs.dims.dim[0];
    if (at < 0 || !gives_whole_dim(m, op))
        return false;
    results[0] = arg(op, 0)->type;
    const Dim longer = results[0].dim[at];
    int other = find_dim(&results[0], to->name);
    if (other >= 0 && other != at)
        return REFUSE(NULL, "%%%s already has a dim '%s'", arg(op, 0)->name, to->name);
    results[0].dim[at] = *to;
    return check_stretch(m, op, to, &longer);
}

/* May the several dims be the one with its padding?  Nothing reads the padding of such a dim, or knows what is there.
 */
static bool has_free_padding(const Dim *one) { return one->padded > one->size && !one->full && !one->split.count; }

/* Is the one dim dealt in as many blocks as the first of two has elements, and each block the second one? */
static bool are_blocks(const Dim *one, int count, const Dim parts[])
{
    Dim block = *one;
    block.split.dealt = 0;
    return one->split.dealt && count == 2 && parts[0].size == one->split.dealt && !parts[0].split.count &&
           same_split(&block, &parts[1]);
}

/* Are the several dims, `parts`, together the one, with its padding or without any, and split only along the outermost,
 * as the one is?  Or along the second, if the one is dealt in blocks. */
static bool check_fold(Module *m, const Op *op, const Dim *one, int count, const Dim parts[])
{
    const bool is_cut = are_blocks(one, count, parts);
    int outermost = 0; /* with more than one element */
    while (outermost < count - 1 && parts[outermost].size == 1 && !parts[outermost].split.count)
        outermost++;
    double product = 1; /* of eight sizes, which may not fit into an integer */
    bool is_plain = !one->full;
    for (int i = 0; i < count; i++) {
        product *= (double)parts[i].size;
        is_plain &= parts[i].padded == parts[i].size && !parts[i].full;
        if (i > outermost && parts[i].split.count && !is_cut)
            return REFUSE("all_gather it first", "%s needs all of '%s', which is split", info(op)->name, parts[i].name);
    }
    const bool is_whole = has_free_padding(one) && product == (double)one->padded;
    if (product != (double)one->size && !is_whole)
        return REFUSE(NULL, "%s: the dims have %.15g elements together, and '%s' has %lld", info(op)->name, product,
                      one->name, (long long)one->size);
    if (!is_plain || (one->padded > one->size && !is_whole))
        return REFUSE(NULL, "%s needs dims without padding", info(op)->name);
    if (!is_cut && !same_split(one, &parts[outermost]))
        return REFUSE("reshard the operand", "%s: '%s' and '%s' must be split alike", info(op)->name, one->name,
                      parts[outermost].name);
    return true;
}

INFER(split)
{
    const Type *x = &arg(op, 0)->type;
    const Dims *to = &op->attrs.dims;
    const int at = named_dim(m, op);
    if (at < 0)
        return false;
    if (to->count < 2 || x->rank - 1 + to->count > MAX_RANK)
        return REFUSE(NULL, "split needs {dims=[name:size, ...]}, and makes at most %d dims", MAX_RANK);
    results[0] = *x;
    for (int i = 0; i < to->count; i++) {
        if (find_dim(x, to->dim[i].name) >= 0)
            return REFUSE(NULL, "%%%s already has a dim '%s'", arg(op, 0)->name, to->dim[i].name);
        results[0].dim[at + i] = to->dim[i];
    }
    for (int i = at + 1; i < x->rank; i++)
        results[0].dim[i + to->count - 1] = x->dim[i];
    results[0].rank += to->count - 1;
    return check_fold(m, op, &x->dim[at], to->count, to->dim);
}

INFER(merge)
{
    const Type *x = &arg(op, 0)->type;
    const Names *from = &op->attrs.over;
    const int at = from->count ? find_dim(x, from->name[0]) : -1;
    if (op->attrs.dims.count != 1 || from->count < 2 || at < 0 || at + from->count > x->rank)
        return REFUSE(NULL, "merge needs {over=a+b, dims=[name:size]}, with dims of %%%s", arg(op, 0)->name);
    for (int i = 0; i < from->count; i++)
        if (x->dim[at + i].name != from->name[i])
            return REFUSE("reorder it first", "merge: the dims of %%%s are not next to each other, in this order",
                          arg(op, 0)->name);
    const Dim *to = &op->attrs.dims.dim[0];
    if (find_dim(x, to->name) >= 0)
        return REFUSE(NULL, "%%%s already has a dim '%s'", arg(op, 0)->name, to->name);
    results[0] = *x;
    results[0].dim[at] = *to;
    results[0].rank -= from->count - 1;
    for (int i = at + 1; i < results[0].rank; i++)
        results[0].dim[i] = x->dim[i + from->count - 1];
    return check_fold(m, op, to, from->count, &x->dim[at]);
}

/* pad x {dims=[d:n], index}: along dim `dim` of x; without `dim`, d is a new dim, at the front. */
INFER(pad)
{
    const Type *x = &arg(op, 0)->type;
    const Dim *to = &op->attrs.dims.dim[0];
    if (!gives_whole_dim(m, op))
        return false;
    Dim one = { .name = to->name, .size = 1, .padded = 1 };
    int at = op->attrs.dim ? named_dim(m, op) : 0, other = find_dim(x, to->name);
    if (at < 0)
        return false;
    if (other >= 0 && !(op->attrs.dim && other == at))
        return REFUSE(NULL, "%%%s already has a dim '%s'", arg(op, 0)->name, to->name);
    if (!op->attrs.dim && x->rank == MAX_RANK)
        return REFUSE(NULL, "pad has more than %d dims", MAX_RANK);
    results[0] = op->attrs.dim ? *x : with_dim_first(*x, *to);
    const Dim shorter = op->attrs.dim ? x->dim[at] : one;
    results[0].dim[at] = *to;
    return check_stretch(m, op, &shorter, to);
}

/* concat a, b, ... {dims=[d:n]}: all have d, of sizes that add up to n; all other dims are equal. */
INFER(concat)
{
    const Dim *to = &op->attrs.dims.dim[0];
    if (!gives_whole_dim(m, op))
        return false;
    if (op->args.count < 2 || op->args.count > MAX_CONCAT)
        return REFUSE(NULL, "concat takes 2 to %d operands", MAX_CONCAT);
    const Type *first = &arg(op, 0)->type;
    const int at = find_dim(first, to->name);
    int64_t size = 0;
    bool is_alike = true;
    for (int i = 0; i < op->args.count; i++) {
        Type like = arg(op, i)->type;
        const int own = find_dim(&like, to->name);
        size += own >= 0 ? like.dim[own].size : 0;
        if (own >= 0 && at >= 0)
            like.dim[own] = first->dim[at];
        is_alike &= like.dtype == first->dtype && same_dims(first, &like);
    }
    if (at < 0 || size != to->size)
        return REFUSE(NULL, "the operands of concat do not add up to %lld along '%s'", (long long)to->size, to->name);
    if (!is_alike)
        return REFUSE(NULL, "the operands of concat differ in more than '%s'", to->name);
    results[0] = *first;
    results[0].dim[at] = *to;
    return true;
}

/* --- gather and scatter_add: [before the row, shared with the index, the row or the index's own, others] --- */

bool is_dim_of_index_alone(const Type *table, const Dim *dim, Name row)
{
    return dim->name == row || find_dim(table, dim->name) < 0;
}

bool append_dim(Module *m, const Op *op, Type *y, const Dim *dim)
{
    if (y->rank == MAX_RANK || find_dim(y, dim->name) >= 0)
        return REFUSE("rename one of them", "%s: '%s' would occur twice, or there are too many dims", info(op)->name,
                      dim->name);
    y->dim[y->rank++] = *dim;
    return true;
}

/* Appends the dims [from, end) of x, but for `except`, that are dims of the index, or that are not. */
static bool append_dims(Module *m, const Op *op, Type *y, int from, int end, Name except, bool of_index)
{
    const Type *x = &arg(op, 0)->type, *index = &arg(op, 1)->type;
    bool good = true;
    for (int i = from; i < end && good; i++)
        if (x->dim[i].name != except && !has_name(&op->attrs.over, x->dim[i].name) &&
            (find_dim(index, x->dim[i].name) >= 0) == of_index)
            good = append_dim(m, op, y, &x->dim[i]);
    return good;
}

static bool agree_on(Module *m, const Op *op, const Dim *a, const Dim *b)
{
    if (a->size == b->size && same_split(a, b))
        return true;
    return REFUSE("reshard one of them", "the operands of %s split '%s' differently", info(op)->name, a->name);
}

/* gather table, index {dim}: partial over the axes that split the dim, since ranks without the row give zeros. */
INFER(gather)
{
    const Type *table = &arg(op, 0)->type, *index = &arg(op, 1)->type;
    int at = named_dim(m, op);
    if (at < 0)
        return false;
    if (index->dtype != I32 || index->partial)
        return REFUSE(NULL, "the index of gather must be i32 and not partial");
    if (table->dtype == BOOL)
        return REFUSE("cast it to i32", "gather of bools, which ranks cannot sum");
    if (table->partial && table->by == BY_MAX)
        return REFUSE("all_reduce it first", "gather of a pending maximum");
    Type *y = &results[0];
    const Name row = op->attrs.dim;
    *y = (Type){ .dtype = table->dtype, .partial = table->partial | split_axes(table->dim[at].split) };
    bool good = append_dims(m, op, y, 0, at, row, false) && append_dims(m, op, y, 0, table->rank, row, true);
    for (int i = 0; i < index->rank && good; i++)
        good = is_dim_of_index_alone(table, &index->dim[i], row)
                   ? append_dim(m, op, y, &index->dim[i])
                   : agree_on(m, op, &table->dim[find_dim(table, index->dim[i].name)], &index->dim[i]);
    if (!good || !append_dims(m, op, y, at + 1, table->rank, row, false))
        return false;
    if (table->partial & split_axes(table->dim[at].split) || !each_axis_once(y, y->partial))
        return REFUSE("reshard one operand", "the operands of gather use one mesh axis twice");
    return true;
}

/* scatter_add x, index[, sum] {over, dims=[d:n]}: d replaces {over}, whose splits leave sums pending. */
INFER(scatter_add)
{
    if (op->args.count != 2 && op->args.count != 3)
        return REFUSE(NULL, "scatter_add takes 2 operands, or 3 with a sum, not %d", op->args.count);
    const Type *x = &arg(op, 0)->type, *index = &arg(op, 1)->type;
    if (op->attrs.dims.count != 1 || index->dtype != I32 || index->partial || x->by == BY_MAX)
        return REFUSE(NULL, "scatter_add takes a tensor, an i32 index, and {dims=[name:size]}");
    Type *y = &results[0];
    *y = (Type){ .dtype = is_half(x->dtype) ? F32 : x->dtype, .partial = x->partial };
    for (int i = 0; i < index->rank; i++) {
        int at = find_dim(x, index->dim[i].name);
        if (at < 0)
            return REFUSE(NULL, "%%%s has no dim '%s' as the index has", arg(op, 0)->name, index->dim[i].name);
        if (!agree_on(m, op, &x->dim[at], &index->dim[i]))
            return false;
    }
    for (int i = 0; i < op->attrs.over.count; i++) {
        int at = find_dim(index, op->attrs.over.name[i]);
        if (at < 0)
            return REFUSE(NULL, "the index of scatter_add has no dim '%s'", op->attrs.over.name[i]);
        y->partial |= split_axes(index->dim[at].split);
    }
    int first = 0;
    while (first < x->rank && index->rank && find_dim(index, x->dim[first].name) < 0)
        first++;
    if (!append_dims(m, op, y, 0, first, NULL, false) || !append_dims(m, op, y, first, x->rank, NULL, true) ||
        !append_dim(m, op, y, &op->attrs.dims.dim[0]) || !append_dims(m, op, y, first, x->rank, NULL, false))
        return false;
    if (!is_float(y->dtype))
        return REFUSE(NULL, "scatter_add adds floating-point numbers");
    const Value *sum = sum_before(op);
    if (sum && !(same_dims(&sum->type, y) && sum->type.dtype == y->dtype))
        return REFUSE(NULL, "scatter_add adds to %%%s, which has not the type of the result", sum->name);
    return each_axis_once(y, y->partial) ? true : REFUSE(NULL, "scatter_add uses one mesh axis twice");
}

/* Positions: i32, over dims of x but not its features. */
static bool check_positions(Module *m, const Op *op)
{
    const Type *x = &arg(op, 0)->type, *position = &arg(op, 1)->type;
    if (position->dtype != I32 || position->partial || find_dim(position, op->attrs.feature) >= 0)
        return REFUSE(NULL, "the positions of rope must be i32, not partial, and without '%s'", op->attrs.feature);
    for (int i = 0; i < position->rank; i++) {
        const int at = find_dim(x, position->dim[i].name);
        if (at < 0 || !dim_equal(&x->dim[at], &position->dim[i]))
            return REFUSE("reshard one of them", "rope: %%%s and %%%s do not agree on '%s'", arg(op, 0)->name,
                          arg(op, 1)->name, position->dim[i].name);
    }
    return true;
}

INFER(rope)
{
    if (op->args.count != 1 && op->args.count != 2)
        return REFUSE(NULL, "rope takes 1 operand, or 2 with positions, not %d", op->args.count);
    const Type *x = &arg(op, 0)->type;
    int feature = op->attrs.feature ? find_dim(x, op->attrs.feature) : -1;
    if (feature < 0 || !op->attrs.seq || find_dim(x, op->attrs.seq) < 0)
        return REFUSE(NULL, "rope needs {seq, feature}, and both in its operand");
    if (x->dim[feature].size % 2)
        return REFUSE(NULL, "rope rotates pairs, but '%s' is %lld", op->attrs.feature, (long long)x->dim[feature].size);
    if (op->args.count > 1 && !check_positions(m, op))
        return false;
    results[0] = *x;
    results[0].partial = 0;
    return infer_partial(m, op, &results[0]);
}

/* y = x, by what is along {dim} */
static bool infer_cumulative(Module *m, const Op *op, Type results[])
{
    if (named_dim(m, op) < 0)
        return false;
    results[0] = arg(op, 0)->type;
    if (results[0].dtype == BOOL)
        return REFUSE("cast it to i32", "%s takes numbers, not bool", info(op)->name);
    results[0].partial = 0;
    return infer_partial(m, op, &results[0]);
}

INFER(cumsum)
{
    if (!infer_cumulative(m, op, results))
        return false;
    results[0].dtype = is_half(results[0].dtype) ? F32 : results[0].dtype;
    return true;
}

/* Of integers: its gradient would go to the elements that are the largest so far. */
INFER(cummax)
{
    if (arg(op, 0)->type.dtype != I32)
        return REFUSE(NULL, "cummax takes i32, not %s", dtype_name[arg(op, 0)->type.dtype]);
    return infer_cumulative(m, op, results);
}

static const Func *callee_of(Module *m, const Op *op)
{
    const Func *callee = called_by(m, op);
    if (!callee)
        return (void)REFUSE(NULL, "%s of '%s', which is not a function of the module", info(op)->name,
                            op->attrs.callee ? op->attrs.callee : ""),
               NULL;
    if (callee->params.count != op->args.count)
        return (void)REFUSE(NULL, "@%s takes %d operands, not %d", callee->name, callee->params.count, op->args.count),
               NULL;
    return callee;
}

/* A function whose types name no ranks runs on those of its call. */
static Type as_callee_sees(bool names_ranks, Type type)
{
    if (!names_ranks)
        type.on = (RankSet){ 0 };
    return type;
}

static bool check_argument(Module *m, const Op *op, const Type *given, bool names_ranks, const Value *param)
{
    const Type seen = as_callee_sees(names_ranks, *given);
    if (!type_equal(&seen, &param->type))
        return REFUSE(NULL, "@%s takes %%%s : %s, not %s", op->attrs.callee, param->name, type_text(m, &param->type),
                      type_text(m, given));
    return true;
}

INFER(call)
{
    const Func *callee = callee_of(m, op);
    if (!callee)
        return false;
    const bool names_ranks = says_where(m, callee);
    for (int i = 0; i < op->args.count; i++)
        if (!check_argument(m, op, &arg(op, i)->type, names_ranks, callee->params.at[i]))
            return false;
    for (int i = 0; i < callee->results.count; i++)
        results[i] = callee->results.at[i]->type;
    return true;
}

INFER(loop)
{
    const Func *callee = callee_of(m, op);
    if (!callee)
        return false;
    int carried = (int)op->attrs.carried;
    const bool names_ranks = says_where(m, callee);
    if (op->attrs.dims.count != 1 || op->attrs.carried < 0 || op->attrs.carried > op->args.count ||
        op->attrs.carried > callee->results.count)
        return REFUSE(NULL, "loop needs {dims=[name:size]} and at most as many carried operands as operands");
    if (op->attrs.prefetch < 0 || op->attrs.prefetch > op->args.count - carried)
        return REFUSE(NULL, "loop cannot prefetch more operands than it slices");
    const Dim *dim = &op->attrs.dims.dim[0];
    if (dim->split.count > 1 || dim->zigzag)
        return REFUSE("split it over one axis", "the stages of a loop are ranks along one axis");
    for (int i = 0; i < op->args.count; i++) {
        Type given = arg(op, i)->type;
        int at = i < carried ? -1 : find_dim(&given, dim->name);
        if (at >= 0 && !same_split(&given.dim[at], dim))
            return REFUSE("reshard it first", "loop slices %%%s along '%s', which is split otherwise there",
                          arg(op, i)->name, dim->name);
        if (at > 0 || (at == 0 && given.dim[0].size != dim->size))
            return REFUSE(NULL, "loop slices %%%s along its first dim, of size %lld", arg(op, i)->name,
                          (long long)dim->size);
        if (at < 0 && is_prefetched(op, i))
            return REFUSE(NULL, "loop cannot prefetch %%%s, which has no '%s'", arg(op, i)->name, dim->name);
        if (at == 0)
            given = without_dim(given, dim->name);
        if (!check_argument(m, op, &given, names_ranks, callee->params.at[i]))
            return false;
    }
    for (int i = 0; i < callee->results.count; i++) {
        const Value *value = callee->results.at[i];
        const Type given = i < carried ? as_callee_sees(names_ranks, arg(op, i)->type) : value->type;
        if (!type_equal(&value->type, &given))
            return REFUSE(NULL, "@%s carries %%%s : %s, but returns %s", callee->name, arg(op, i)->name,
                          type_text(m, &arg(op, i)->type), type_text(m, &value->type));
        if (i >= carried &&
            (value->type.in_flight || find_dim(&value->type, dim->name) >= 0 || value->type.rank == MAX_RANK))
            return REFUSE(NULL, "%%%s cannot be stacked along '%s'", value->name, dim->name);
        results[i] = i < carried ? value->type : with_dim_first(value->type, *dim);
    }
    return true;
}
