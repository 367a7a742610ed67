/* infer.c -- the result types of an op: of nearly every one by the common rule.
 *
 * Dims are matched by name.  The row's roles determine what happens to each dim, its linearity what happens to pending
 * sums.  Sharding, loops and cost follow from these two.
 */
#include "infer.h"
#include "blocks.h"
#include "split_loop.h"

#include <math.h>

/* The widest dtype of the operands.  Bools are ignored beside numbers, and WEAK operands beside others: x * 0.5 has the
 * dtype of x. */
static bool promote(Module *m, const Op *op, DType *dtype)
{
    int strong = -1, weak = -1, any_float = 0, any_int = 0;
    for (int i = 0; i < op->args.count; i++) {
        const Value *value = arg(op, i);
        DType t = value->type.dtype;
        if (t == BOOL)
            continue;
        int *best = is_any_number(value) ? &weak : &strong;
        *(t == I32 ? &any_int : &any_float) += best == &strong;
        if (*best < 0 || (is_float(t) && (!is_float((DType)*best) || (DType)*best != t)))
            *best = *best < 0 || *best == I32 ? (int)t : (int)F32; /* bf16 with f16 or f32: f32 */
    }
    if (any_float && any_int)
        return REFUSE("cast one of them", "%s of integers and floating-point numbers", info(op)->name);
    *dtype = strong >= 0 ? (DType)strong : weak >= 0 ? (DType)weak : BOOL;
    return true;
}

/* Applies the roles of the space's dims to the result. */
static void apply_roles(const Op *op, const Type *space, Type *result)
{
    for (int i = 0; i < space->rank; i++) {
        const Dim *dim = &space->dim[i];
        Axes axes = split_axes(dim->split);
        switch (op_role(op, dim->name)) {
        case KEEP:
        case WHOLE:
            result->dim[result->rank++] = *dim;
            break;
        case SUM:
        case PICK:
            result->partial |= axes; /* summing over a split dim leaves a sum pending */
            break;
        case MIN:
            break;
        case MAX:
            result->partial |= axes;
            result->by = axes ? BY_MAX : result->by;
            break;
        }
    }
}

INFER(by_name)
{
    Type space, *y = &results[0];
    *y = (Type){ 0 };
    if (!op_space(m, op, &space) || !promote(m, op, &y->dtype) || !infer_partial(m, op, y))
        return false;
    if (!each_axis_once(&space, y->partial))
        return REFUSE("reshard one operand", "the operands of %s use one mesh axis twice", info(op)->name);
    if (y->partial && info(op)->linear == FIRST && !is_float(y->dtype)) /* it truncates */
        return REFUSE("all_reduce it first", "%s of partial integers", info(op)->name);
    if (info(op)->traits & COMPARES)
        y->dtype = BOOL;
    apply_roles(op, &space, y);
    return true;
}

/* Sums and extremes of bf16 and f16 are f32, for precision. */
INFER(reduction)
{
    if (!infer_by_name(m, op, results))
        return false;
    if (is_half(results[0].dtype))
        results[0].dtype = F32;
    return true;
}

/* Puts the dims of `type` into the order {order}. */
static bool put_in_order(Module *m, const Op *op, Type *type)
{
    Type given = *type;
    if (op->attrs.order.count != type->rank)
        return REFUSE(NULL, "'order' of %s names %d dims, but the result has %d", info(op)->name, op->attrs.order.count,
                      type->rank);
    for (int i = 0; i < type->rank; i++) {
        int at = find_dim(&given, op->attrs.order.name[i]);
        if (at < 0)
            return REFUSE(NULL, "'order' names '%s', which the result of %s lacks", op->attrs.order.name[i],
                          info(op)->name);
        type->dim[i] = given.dim[at];
    }
    return true;
}

static bool set_dtype(Module *m, const Op *op, Type *type)
{
    DType dtype = dtype_named(op->attrs.dtype);
    if (dtype == N_DTYPES)
        return REFUSE(NULL, "'%s' is not a dtype", op->attrs.dtype);
    type->dtype = dtype;
    return true;
}

INFER(dot)
{
    if (!infer_by_name(m, op, results))
        return false;
    for (int i = 0; i < op->attrs.over.count; i++)
        for (int a = 0; a < op->args.count; a++)
            if (find_dim(&arg(op, a)->type, op->attrs.over.name[i]) < 0)
                return REFUSE("sum the other operand first", "dot over '%s', which %%%s lacks", op->attrs.over.name[i],
                              arg(op, a)->name);
    return (!op->attrs.order.count || put_in_order(m, op, &results[0])) &&
           (!op->attrs.dtype || set_dtype(m, op, &results[0]));
}

INFER(dot_e4m3)
{
    for (int i = 0; i < 2; i++) {
        const Type *rounded = &arg(op, i)->type, *type = &arg(op, i + 2)->type;
        if (!type_equal(rounded, type) || type->dtype != BF16)
            return REFUSE(NULL, "%%%s and %%%s of dot_e4m3 are not bf16 tensors of one type", arg(op, i)->name,
                          arg(op, i + 2)->name);
        if (!has_e4m3_blocks(m, type, op->attrs.dim) ||
            (find_dim(type, op->attrs.across) >= 0 && !has_e4m3_blocks(m, type, op->attrs.across)))
            return REFUSE(NULL, "%%%s of dot_e4m3 has no runs of %d along {dim}, or squares along {across}, on a rank",
                          arg(op, i)->name, E4M3_BLOCK);
    }
    return infer_dot(m, op, results);
}

/* Changes the padding of the dims in {dims}. */
static bool pad_dims(Module *m, const Op *op, Type *type)
{
    for (int i = 0; i < op->attrs.dims.count; i++) {
        const Dim *dim = &op->attrs.dims.dim[i];
        int at = find_dim(type, dim->name);
        if (at < 0 || type->dim[at].size != dim->size || type->dim[at].split.count || dim->split.count ||
            dim->padded < dim->size)
            return REFUSE(NULL, "reorder pads '%s', which is not an unsplit dim of that size", dim->name);
        type->dim[at] = *dim;
    }
    return true;
}

/* The same tensor, so sums and maxima may stay pending.  No order: a copy with memory of its own. */
INFER(reorder)
{
    results[0] = arg(op, 0)->type;
    return (!op->attrs.order.count || put_in_order(m, op, &results[0])) && pad_dims(m, op, &results[0]);
}

INFER(cast)
{
    if (!op->attrs.dtype)
        return REFUSE(NULL, "cast needs a dtype");
    if (!infer_by_name(m, op, results) || !set_dtype(m, op, &results[0]))
        return false;
    return results[0].partial && !is_float(results[0].dtype)
               ? REFUSE("all_reduce it first", "cast of a partial tensor to %s", op->attrs.dtype)
               : true;
}

/* Zeros are a sum pending over any axes, on any ranks. */
static bool pend_zeros(Module *m, const Op *op, Type *y)
{
    if (!is_number(arg(op, 0), 0))
        return REFUSE(op->attrs.axis ? "leave {axis} out" : "leave {on} out",
                      "only a broadcast of 0 can be declared a pending sum, or on some stages");
    y->partial = op->attrs.axis;
    return true;
}

INFER(broadcast)
{
    Type x, *y = &results[0];
    if (!infer_by_name(m, op, results) || ((op->attrs.axis || op->attrs.on.at) && !pend_zeros(m, op, y)))
        return false;
    x = *y;
    y->rank = 0;
    for (int i = 0; i < op->attrs.dims.count; i++) {
        if (find_dim(&x, op->attrs.dims.dim[i].name) >= 0)
            return REFUSE(NULL, "broadcast over '%s', which the operand has", op->attrs.dims.dim[i].name);
        y->dim[y->rank++] = op->attrs.dims.dim[i];
    }
    for (int i = 0; i < x.rank; i++) {
        if (y->rank == MAX_RANK)
            return REFUSE(NULL, "broadcast has more than %d dims", MAX_RANK);
        y->dim[y->rank++] = x.dim[i];
    }
    return each_axis_once(y, y->partial) ? true : REFUSE(NULL, "broadcast uses one mesh axis twice");
}

INFER(dropout)
{
    if (arg(op, 1)->type.rank || arg(op, 2)->type.rank || arg(op, 1)->type.dtype != I32 ||
        arg(op, 2)->type.dtype != I32)
        return REFUSE(NULL, "dropout takes a tensor, a key and an origin (both i32[])");
    if (!(op->attrs.rate >= 0 && op->attrs.rate < 1))
        return REFUSE(NULL, "the rate of dropout must be at least 0 and below 1");
    results[0] = arg(op, 0)->type;
    results[0].partial = 0;
    return infer_partial(m, op, &results[0]); /* every rank has the same mask, so terms may stay pending */
}

INFER(constant)
{
    const double value = op->attrs.value;
    results[0] = scalar_type(F32);
    if (op->attrs.dtype && !set_dtype(m, op, &results[0]))
        return false;
    if (results[0].dtype == I32 && !(value >= INT32_MIN && value <= INT32_MAX && value == trunc(value)))
        return REFUSE(NULL, "%.17g is not an i32", value);
    if (results[0].dtype == BOOL && value != 0 && value != 1)
        return REFUSE("write 0 or 1", "%.17g is not a bool", value);
    return true;
}

INFER(iota)
{
    if (op->attrs.dims.count != 1)
        return REFUSE(NULL, "iota runs over one dim");
    results[0] = with_dim_first(scalar_type(I32), op->attrs.dims.dim[0]);
    return true;
}

/* Each rank runs the iterations whose slices it holds, and sends carried values to the next one, except those in
 * flight, which begin on each rank. */
static bool infer_ranks_of_loop(Module *m, const Op *op, Type results[], int count)
{
    const int carried = (int)op->attrs.carried;
    const RankSet first = end_rank(m, op, false), passed = ranks_passed(m, op);
    for (int i = 0; i < op->args.count; i++) {
        const RankSet on = arg(op, i)->type.on;
        if (i < carried ? common_ranks(on, first).axis < 0 : !is_on_all(on, passed))
            return REFUSE("send it there",
                          i < carried ? "%%%s is not on(%s), where the loop begins"
                                      : "%%%s is not on all stages of the loop, %s being the first",
                          arg(op, i)->name, ranks_text(m, first));
    }
    for (int i = 0; i < count; i++)
        results[i].on = i < carried && !results[i].in_flight ? end_rank(m, op, true) : (RankSet){ 0 };
    return true;
}

/* The ranks that run an op are those that hold all of its operands. */
static bool infer_ranks(Module *m, const Op *op, Type results[], int count)
{
    const Func *callee = called_by(m, op);
    RankSet on = { 0 };
    if ((callee && says_where(m, callee)) || info(op)->traits & MOVES) /* said by its types, or by {on} */
        return true;
    if (is_split_loop(op))
        return infer_ranks_of_loop(m, op, results, count);
    for (int i = 0; i < op->args.count && !adds_ranks(op); i++) {
        const RankSet given = arg(op, i)->type.on, both = common_ranks(on, given);
        if (both.axis < 0)
            return REFUSE("send one of them", "no stage holds all operands of %s: %%%s is on(%s)", info(op)->name,
                          arg(op, i)->name, ranks_text(m, given));
        on = both;
    }
    for (int i = 0; i < op->args.count && on.at && !adds_ranks(op); i++) {
        const Type *type = &arg(op, i)->type;
        if (type->partial & 1u << on.axis && !is_on_all(on, type->on))
            return REFUSE("all_reduce it first", "%s would lose terms of %%%s, which are on other stages than on(%s)",
                          info(op)->name, arg(op, i)->name, ranks_text(m, on));
    }
    if (adds_ranks(op)) {
        const RankSet a = arg(op, 0)->type.on, b = arg(op, 1)->type.on;
        on = a.at && b.at ? (RankSet){ a.at | b.at, a.axis } : (RankSet){ 0 };
    }
    on = unless_all(m, op->attrs.on.at ? op->attrs.on : on); /* of zeros: as it is declared */
    for (int i = 0; i < count; i++) {
        results[i].on = on;
        for (int j = 0; on.at && j < results[i].rank; j++)
            for (int k = 0; k < results[i].dim[j].split.count; k++)
                if (results[i].dim[j].split.axis[k] == on.axis)
                    return REFUSE("hold it on all of them", "the stages of %s are some of %s, which split '%s'",
                                  info(op)->name, m->axis[on.axis], results[i].dim[j].name);
    }
    return true;
}

/* Views and loops read no elements; all other ops but moves read them from the device. */
static bool reads_near(Module *m, const Op *op)
{
    const bool looks = info(op)->family == CONTROL ? kernel_called_by(m, op) != NULL : info(op)->family != VIEW;
    for (int i = 0; i < op->args.count; i++)
        if (arg(op, i)->type.tier && looks && !(info(op)->traits & CARRIES))
            return REFUSE("move it near first", "%s reads %%%s, which is on %s", info(op)->name, arg(op, i)->name,
                          Tier_words[arg(op, i)->type.tier]);
    return true;
}

static bool (*const infer_table[N_OPS])(Module *, const Op *, Type results[]) = {
#define OP(name, args, res, family, over, roles, linear, traits, flops, infer, vjp) [OP_##name] = infer_##infer,
#include "ops.def"
};

bool infer_op(Module *m, const Op *op, Type results[])
{
    const OpInfo *row = info(op);
    if (row->args >= 0 && op->args.count != row->args)
        return REFUSE(NULL, "%s takes %d operands, not %d", row->name, row->args, op->args.count);
    for (int i = 0; i < op->args.count; i++)
        if (arg(op, i)->type.in_flight && !(row->traits & WAITS) && i >= op->attrs.carried)
            return REFUSE("wait for it first", "%s reads %%%s, which is in flight", row->name, arg(op, i)->name);
    if (!reads_near(m, op) || !has_whole_dims(m, op) || !infer_table[op->kind](m, op, results) ||
        !infer_ranks(m, op, results, result_count(m, op)))
        return false;
    if (op->attrs.started)
        results[0].in_flight = true;
    return true;
}

int result_count(const Module *m, const Op *op)
{
    const Func *callee = called_by(m, op);
    return info(op)->results >= 0 ? info(op)->results : callee ? callee->results.count : 0;
}

Type *infer_results(Module *m, const Op *op)
{
    int count = result_count(m, op);
    if (count >= m->inferred_room) {
        m->inferred_room = 2 * count + 16;
        m->inferred = NEW_ARRAY(&m->arena, Type, m->inferred_room);
    }
    return infer_op(m, op, m->inferred) ? m->inferred : NULL;
}
