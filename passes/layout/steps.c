/* steps.c -- see steps.h. */
#include "steps.h"

#include "ranks.h"
#include "tensor_layout.h"

static Axes bit(int axis) { return 1u << axis; }

/* The next axis of `to` inside the split of `now`; -1: none, or the splits differ. */
static int next_axis(const Dim *now, const Dim *to)
{
    if (now->split.count >= to->split.count || (now->split.count && now->zigzag != to->zigzag))
        return -1;
    for (int i = 0; i < now->split.count; i++)
        if (now->split.axis[i] != to->split.axis[i])
            return -1;
    return to->split.axis[now->split.count];
}

/* The innermost axis of `now`, if it must be removed; -1: none. */
static int axis_too_many(const Dim *now, const Dim *to)
{
    bool is_prefix = now->split.count <= to->split.count && (now->split.count == 0 || now->zigzag == to->zigzag);
    for (int i = 0; i < now->split.count && is_prefix; i++)
        is_prefix = now->split.axis[i] == to->split.axis[i];
    return is_prefix ? -1 : now->split.axis[now->split.count - 1];
}

/* All that must be removed. */
static Axes axes_too_many(const Dim *now, const Dim *to)
{
    Dim left = *now;
    Axes axes = 0;
    for (int axis; (axis = axis_too_many(&left, to)) >= 0; left.split.count--)
        axes |= bit(axis);
    return axes;
}

static int deals_zigzag(const Dim *now, const Dim *to) { return now->split.count ? 0 : to->zigzag; }

/* The axes that one message may have in a split, from its i-th axis on, outwards (-1) or inwards: neighbours in the
 * order of the mesh, in which a group has its ranks.  Zig-zag is dealt over one axis. */
static Axes adjacent_axes(const Dim *dim, int i, int direction, Axes allowed)
{
    Axes axes = bit(dim->split.axis[i]);
    for (int k = i + direction; k >= 0 && k < dim->split.count && !dim->zigzag; k += direction) {
        const int axis = dim->split.axis[k];
        if ((axis - dim->split.axis[k - direction]) * direction <= 0 || !(allowed & bit(axis)))
            break;
        axes |= bit(axis);
    }
    return axes;
}

/* A step towards `to` that splits a dim over more of `axes`: over one, or over several at once, if a message does so.
 */
static bool splitting(const Type *now, const Type *to, Axes axes, OpKind kind, Collective *step)
{
    for (int i = 0; i < now->rank; i++) {
        const Dim *dim = &now->dim[i];
        int axis = next_axis(dim, &to->dim[i]);
        if (axis < 0 || !(axes & bit(axis)))
            continue;
        const bool sends = op_table[kind].traits & SENDS;
        *step = (Collective){ kind,
                              { .dim = dim->name,
                                .axis = sends ? adjacent_axes(&to->dim[i], dim->split.count, 1, axes) : bit(axis),
                                .zigzag = deals_zigzag(dim, &to->dim[i]) } };
        return true;
    }
    return false;
}

static bool exchanging(const Type *now, const Type *to, Collective *step)
{
    for (int i = 0; i < now->rank; i++) {
        int axis = axis_too_many(&now->dim[i], &to->dim[i]);
        for (int j = 0; j < now->rank && axis >= 0; j++)
            if (j != i && next_axis(&now->dim[j], &to->dim[j]) == axis) {
                *step = (Collective){ OP_all_to_all,
                                      { .dim = now->dim[i].name,
                                        .to = now->dim[j].name,
                                        .axis = bit(axis),
                                        .zigzag = deals_zigzag(&now->dim[j], &to->dim[j]) } };
                return true;
            }
    }
    return false;
}

static bool gathering(const Type *now, const Type *to, Collective *step)
{
    for (int i = 0; i < now->rank; i++) {
        const Dim *dim = &now->dim[i];
        if (axis_too_many(dim, &to->dim[i]) < 0)
            continue;
        *step =
            (Collective){ OP_all_gather,
                          { .dim = dim->name,
                            .axis = adjacent_axes(dim, dim->split.count - 1, -1, axes_too_many(dim, &to->dim[i])) } };
        return true;
    }
    return false;
}

static RankSet first_of(RankSet on) { return (RankSet){ on.at & -on.at, on.axis }; }

static RankSet union_of(const Module *m, RankSet a, RankSet b)
{
    return b.at ? unless_all(m, (RankSet){ a.at | b.at, a.axis }) : b;
}

/* A step towards the ranks of `to`. */
static bool moving(const Module *m, const Type *now, const Type *to, Collective *step)
{
    const Axes axis = now->on.at ? bit(now->on.axis) : 0;
    if (!now->on.at && to->on.at && bit(to->on.axis) & to->partial & ~now->partial)
        *step = (Collective){ OP_hold, { .on = first_of(to->on) } };
    else if (axis & now->partial & ~to->partial)
        *step = (Collective){ OP_all_reduce, { .axis = axis } };
    else if (same_ranks(now->on, to->on) && !(axis & to->partial & ~now->partial))
        return false;
    else if (!is_one_rank(now->on))
        *step = (Collective){ OP_hold, { .on = first_of(now->on) } };
    else if (is_one_rank(to->on))
        *step = (Collective){ OP_send, { .on = to->on } };
    else
        *step = (Collective){ OP_pend, { .axis = axis, .on = union_of(m, now->on, to->on) } };
    return true;
}

/* Has `to` only some of the ranks of `now`, whose values are whole on each? */
static bool narrowing(const Type *now, const Type *to, Collective *step)
{
    const bool is_less = to->on.at && (!now->on.at || !(to->on.at & ~now->on.at)) && !same_ranks(now->on, to->on);
    if (!is_less || (now->partial | to->partial) & bit(to->on.axis))
        return false;
    *step = (Collective){ OP_hold, { .on = to->on } };
    return true;
}

static Axes split_axes_of(const Type *type) { return axes_in_use(type) & ~type->partial; }

bool next_step(const Module *m, const Type *now, const Type *to, Collective *step)
{
    const Axes of_holders = now->on.at ? bit(now->on.axis) : 0;
    Axes pending = now->partial & ~to->partial & ~of_holders, whole = pending & ~split_axes_of(to);
    if (narrowing(now, to, step))
        return true;
    if (splitting(now, to, pending, OP_reduce_scatter, step))
        return true;
    if (splitting(now, to, ~axes_in_use(now), OP_local_slice, step))
        return true;
    if (whole) {
        *step = (Collective){ OP_all_reduce, { .axis = whole } };
        return true;
    }
    return moving(m, now, to, step) || exchanging(now, to, step) || gathering(now, to, step);
}
