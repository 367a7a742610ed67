/* operand_layout.c -- layouts that an op needs of its operands, from the table: layout.c reshards those that differ. */
#include "operand_layout.h"

#include "infer.h"
#include "rank_layout.h"
#include "ranks.h"

int uses_of(const Map *uses, const Value *value) { return (int)(intptr_t)map_get(uses, value); }

/* Are all other operands scalars, which do not affect the layout of the sum? */
static bool others_are_scalars(const Op *op, int at)
{
    for (int i = 0; i < op->args.count; i++)
        if (i != at && arg(op, i)->type.rank > 0)
            return false;
    return true;
}

/* The bytes of the largest of these operands.  Either all of them stay pending or none. */
static int64_t largest_term(const Op *op, int first, int last)
{
    int64_t most = 0;
    for (int i = first; i <= last; i++)
        most = bytes_of(&arg(op, i)->type) > most ? bytes_of(&arg(op, i)->type) : most;
    return most;
}

Axes pending_sums(const LayoutRules *rules, const Map *uses, const Op *op, int *first, int *last)
{
    Linear linear = info(op)->linear;
    *first = linear == REST ? 1 : 0;
    *last = linear == ALL || linear == REST ? op->args.count - 1 : 0;
    for (int i = 0; linear == EACH && i < op->args.count; i++)
        if (arg(op, i)->type.partial)
            *first = *last = i;
    if (linear == NEVER || op->args.count == 0 || op->results.count != 1 || result(op)->type.dtype == BOOL)
        return 0;
    const bool scales = linear == ALL || linear == REST || others_are_scalars(op, *first);
    Axes pending = scales && info(op)->family != PRODUCT ? ~0u : rules->loop_axes;
    const int64_t largest = largest_term(op, *first, *last);
    for (int i = *first; i <= *last; i++) {
        const Value *value = arg(op, i);
        if (chooses_zeros(op, i) && !chooses_zeros(op, *first + *last - i)) {
            pending &= rules->loop_axes;
            continue;
        }
        const bool grows = bytes_of(&result(op)->type) > largest;
        const Axes kept = grows || uses_of(uses, value) > 1 ? rules->loop_axes : ~0u;
        pending &= value->type.by == BY_SUM ? pending_of(op, &value->type) & kept : 0;
    }
    for (int i = 0; i < op->args.count && pending; i++) { /* of a product: each term needs the other factor */
        const RankSet terms = arg(op, *first)->type.on, on = arg(op, i)->type.on;
        pending &= (i >= *first && i <= *last) || is_on_all(on, terms) ? ~0u : ~(1u << on.axis);
    }
    return pending;
}

void adopt_splits(const LayoutRules *rules, const Op *op, Type *space, Axes pending)
{
    for (int i = 0; i < op->args.count; i++)
        for (int j = 0; j < arg(op, i)->type.rank; j++) {
            const Dim *dim = &arg(op, i)->type.dim[j];
            const int at = find_dim(space, dim->name);
            Dim *own = &space->dim[at];
            for (int k = at < 0 ? dim->split.count : own->split.count; k < dim->split.count; k++) {
                Dim more = *own;
                Axes used = axes_in_use(space) | pending;
                if (needs_whole(op, dim->name) || used & 1u << dim->split.axis[k])
                    break;
                more.split.dealt = dim->split.dealt;
                more.split.axis[more.split.count++] = dim->split.axis[k];
                if (!splits_evenly(rules->m, &more))
                    break;
                *own = more;
            }
        }
}

/* False if there is no room for it. */
static bool add_dim(Type *space, const Dim *dim)
{
    if (find_dim(space, dim->name) >= 0)
        return true;
    if (space->rank < MAX_RANK)
        space->dim[space->rank] = *dim;
    return space->rank < MAX_RANK && ++space->rank;
}

/* Adds the dims of operands and attributes; `splits_only`: without those that the op needs whole. */
static bool add_dims(Type *space, const Op *op, bool splits_only)
{
    bool good = true;
    for (int i = 0; i < op->args.count; i++)
        for (int j = 0; j < arg(op, i)->type.rank; j++)
            if (!splits_only || !needs_whole(op, arg(op, i)->type.dim[j].name))
                good &= add_dim(space, &arg(op, i)->type.dim[j]);
    for (int i = 0; i < op->attrs.dims.count; i++)
        if (!splits_only || !needs_whole(op, op->attrs.dims.dim[i].name))
            good &= add_dim(space, &op->attrs.dims.dim[i]);
    return good;
}

Type whole_space(const Op *op)
{
    Type space = { 0 };
    if (!add_dims(&space, op, false)) {
        space = (Type){ 0 };
        add_dims(&space, op, true);
    }
    return unsplit_type(space);
}

Type wanted_type(const Type *given, const Type *space, Axes pending)
{
    Type wanted = unsplit_type(*given);
    wanted.partial = pending & (given->partial | ~pending_with_ranks(given));
    for (int i = 0; i < wanted.rank; i++) {
        const int at = find_dim(space, wanted.dim[i].name);
        if (at < 0)
            continue;
        wanted.dim[i].split = space->dim[at].split;
        wanted.dim[i].zigzag = space->dim[at].zigzag;
    }
    return wanted;
}
