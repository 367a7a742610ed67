/* infer_collectives.c -- result types of collectives: the same tensor in another layout. */
#include "infer.h"
#include "ranks.h"

/* Removes `axes` from the innermost end of a split; false if they are not its innermost axes. */
static bool unsplit(Split *split, Axes axes)
{
    while (axes && split->count) {
        Axes last = 1u << split->axis[split->count - 1];
        if (!(axes & last))
            return false;
        axes &= ~last;
        split->axis[--split->count] = 0;
    }
    return axes == 0;
}

/* Splits a dim along one more axis (or several, in the mesh's order), inside its present split. */
static bool add_split(Module *m, const Op *op, Type *type, Name name, Axes axes)
{
    int at = name ? find_dim(type, name) : -1;
    if (at < 0)
        return REFUSE(NULL, "%s: %%%s has no dim '%s'", info(op)->name, arg(op, 0)->name, name ? name : "");
    Dim *dim = &type->dim[at];
    if (dim->split.turn)
        return REFUSE("rotate it back first", "the blocks of '%s' have been rotated", dim->name);
    if (op->attrs.zigzag && dim->split.count)
        return REFUSE("all_gather it first", "zig-zag is for the outermost axis of '%s', which is split", dim->name);
    if (op->attrs.zigzag)
        dim->zigzag = (int)op->attrs.zigzag;
    for (int i = 0; i < m->naxes; i++) {
        if (!(axes & 1u << i))
            continue;
        if (dim->split.count == MAX_SPLIT)
            return REFUSE(NULL, "'%s' is split more than %d times", dim->name, MAX_SPLIT);
        dim->split.axis[dim->split.count++] = (int8_t)i;
    }
    if (!splits_evenly(m, dim))
        return REFUSE("pad the dim, or use another axis", "%s: '%s' (%lld) does not divide by its axes (%lld)%s",
                      info(op)->name, dim->name, (long long)dim->padded, (long long)split_count(m, dim->split),
                      dim->zigzag ? ", of which zig-zag gives each rank several blocks" : "");
    return each_axis_once(type, type->partial) ? true : REFUSE(NULL, "%s uses one mesh axis twice", info(op)->name);
}

static bool gather(Module *m, const Op *op, Type *type, Name name)
{
    int at = name ? find_dim(type, name) : -1;
    if (at >= 0 && type->dim[at].split.dealt)
        return REFUSE("split it first, as [blocks, block]", "%s: '%s' is dealt in blocks", info(op)->name, name);
    if (at < 0 || !op->attrs.axis || !unsplit(&type->dim[at].split, op->attrs.axis))
        return REFUSE(NULL, "%s: %%%s is not split that way along '%s'", info(op)->name, arg(op, 0)->name,
                      name ? name : "");
    if (type->dim[at].split.turn)
        return REFUSE("rotate it back first", "the blocks of '%s' have been rotated", name);
    if (!type->dim[at].split.count)
        type->dim[at].zigzag = 0;
    return true;
}

/* Any split of the same dims, with a subset of the pending sums. */
INFER(reshard)
{
    const Type *x = &arg(op, 0)->type;
    const Dims *to = &op->attrs.dims;
    results[0] = *x;
    results[0].on = op->attrs.on;
    results[0].partial = op->attrs.axis;
    if (!results[0].partial)
        results[0].by = BY_SUM;
    const RankSet on = x->on.at ? x->on : op->attrs.on;
    const Axes may_pend = x->partial | (is_one_rank(x->on) || (on.at && !x->on.at) ? 1u << on.axis : 0);
    if (to->count != x->rank || results[0].partial & ~may_pend)
        return REFUSE(NULL, "reshard must keep the dims of %%%s and cannot add pending sums", arg(op, 0)->name);
    for (int i = 0; i < x->rank; i++) {
        if (to->dim[i].name != x->dim[i].name || to->dim[i].size != x->dim[i].size ||
            to->dim[i].padded != x->dim[i].padded)
            return REFUSE(NULL, "reshard of %%%s changes more of '%s' than its split", arg(op, 0)->name,
                          x->dim[i].name);
        results[0].dim[i] = to->dim[i];
    }
    return each_axis_once(&results[0], results[0].partial) ? true : REFUSE(NULL, "reshard uses one mesh axis twice");
}

/* The same tensor on another rank. */
INFER(send)
{
    const RankSet from = arg(op, 0)->type.on, to = op->attrs.on;
    results[0] = arg(op, 0)->type;
    results[0].on = to;
    if (!is_one_rank(from) || !is_one_rank(to) || from.axis != to.axis || from.at == to.at)
        return REFUSE(NULL, "send takes %%%s from one stage to another one", arg(op, 0)->name);
    return true;
}

INFER(hold)
{
    const RankSet from = arg(op, 0)->type.on, to = op->attrs.on;
    results[0] = arg(op, 0)->type;
    results[0].on = to;
    if (!to.at || (from.at && (from.axis != to.axis || to.at & ~from.at)))
        return REFUSE("name some of them", "hold takes some of the stages that %%%s is on", arg(op, 0)->name);
    return true;
}

/* Each rank has one of the terms, or none. */
INFER(pend)
{
    const RankSet to = op->attrs.on;
    uint64_t with_term = 0;
    if (!op->args.count)
        return REFUSE(NULL, "pend has no term");
    results[0] = arg(op, 0)->type;
    results[0].on = to;
    results[0].partial |= op->attrs.axis;
    for (int i = 0; i < op->args.count; i++) {
        const Type *x = &arg(op, i)->type;
        const Axes axis = x->on.at ? 1u << x->on.axis : 0;
        Type term = *x;
        term.on = to, term.partial |= op->attrs.axis;
        const bool is_term = pending_with_ranks(x) & axis,
                   fits = !to.at || (to.axis == x->on.axis && !(x->on.at & ~to.at));
        if (!axis || op->attrs.axis != axis || !is_term || !fits)
            return REFUSE(NULL, "pend takes %%%s from one stage to more, along the axis of these stages",
                          arg(op, i)->name);
        if (x->on.at & with_term || !type_equal(&term, &results[0]))
            return REFUSE(NULL, "pend takes terms of one type, each on stages of its own: not %%%s", arg(op, i)->name);
        with_term |= x->on.at;
    }
    return true;
}

INFER(wait)
{
    results[0] = arg(op, 0)->type;
    results[0].in_flight = false;
    return arg(op, 0)->type.in_flight ? true : REFUSE(NULL, "%%%s is not in flight", arg(op, 0)->name);
}

INFER(all_reduce)
{
    results[0] = arg(op, 0)->type;
    if (!op->attrs.axis || (results[0].partial & op->attrs.axis) != op->attrs.axis)
        return REFUSE(NULL, "%s: %%%s is not partial over that axis", info(op)->name, arg(op, 0)->name);
    results[0].partial &= ~op->attrs.axis;
    if (!results[0].partial)
        results[0].by = BY_SUM;
    return true;
}

INFER(all_gather)
{
    results[0] = arg(op, 0)->type;
    return gather(m, op, &results[0], op->attrs.dim);
}

INFER(reduce_scatter)
{
    return infer_all_reduce(m, op, results) && add_split(m, op, &results[0], op->attrs.dim, op->attrs.axis);
}

INFER(all_to_all)
{
    results[0] = arg(op, 0)->type;
    if (op->attrs.dim == op->attrs.to)
        return REFUSE("name another dim", "all_to_all takes the split from one dim to another");
    return gather(m, op, &results[0], op->attrs.dim) && add_split(m, op, &results[0], op->attrs.to, op->attrs.axis);
}

INFER(rotate)
{
    Type *y = &results[0];
    *y = arg(op, 0)->type;
    const int at = op->attrs.dim ? find_dim(y, op->attrs.dim) : -1;
    Split *split = at < 0 ? NULL : &y->dim[at].split;
    if (!split || split->count != 1 || split->parts || op->attrs.axis != 1u << split->axis[0])
        return REFUSE(NULL, "rotate: %%%s is not split over that axis alone along '%s'", arg(op, 0)->name,
                      op->attrs.dim ? op->attrs.dim : "");
    const int64_t ranks = m->axis_size[split->axis[0]];
    if (op->attrs.index <= 0 || op->attrs.index >= ranks)
        return REFUSE(NULL, "rotate by 1 to %lld ranks", (long long)ranks - 1);
    split->turn = (int16_t)((split->turn + op->attrs.index) % ranks);
    return true;
}

/* To or from the device: a way from the host to the disk takes two moves. */
INFER(move)
{
    if (op->args.count < 1 || op->args.count > 2)
        return REFUSE(NULL, "move takes a tensor, and one that it replaces");
    const Type *x = &arg(op, 0)->type;
    results[0] = *x;
    results[0].tier = op->attrs.tier;
    if (!x->tier == !op->attrs.tier)
        return REFUSE("give it another {tier}", "move takes %%%s to or from the device's memory", arg(op, 0)->name);
    if (op->args.count == 2 && (!op->attrs.tier || !type_equal(&arg(op, 1)->type, &results[0])))
        return REFUSE(NULL, "move cannot replace %%%s, which is %s", arg(op, 1)->name, type_text(m, &arg(op, 1)->type));
    return true;
}

INFER(local_slice)
{
    results[0] = arg(op, 0)->type;
    if (!op->attrs.axis)
        return REFUSE(NULL, "local_slice needs an axis");
    return add_split(m, op, &results[0], op->attrs.dim, op->attrs.axis);
}
