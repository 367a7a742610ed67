/* space.c -- the space of an op, the union of its operands' dims, and the sums that are pending in it. */
#include "infer.h"
#include "ranks.h"

#include <string.h>

const char *origin_text(Module *m, const Op *op)
{
    const char *file = file_name(&m->arena, m->diags->source);
    const size_t length = strlen(file);
    if (!op->where || (strncmp(op->where, file, length) == 0 && op->where[length] == ':'))
        return NULL;
    return arena_text(&m->arena, "%s%s%s", op->path ? op->path : "", op->path ? ", " : "", op->where);
}

Axes split_axes(Split split)
{
    Axes axes = 0;
    for (int i = 0; i < split.count; i++)
        axes |= 1u << split.axis[i];
    return axes;
}

bool same_split(const Dim *a, const Dim *b) { return a->zigzag == b->zigzag && split_equal(a->split, b->split); }

/* Adds the dims of one operand to the space. */
static bool join(Module *m, const Op *op, const Type *type, Type *space)
{
    for (int i = 0; i < type->rank; i++) {
        const Dim *dim = &type->dim[i];
        int at = find_dim(space, dim->name);
        if (at < 0 && space->rank == MAX_RANK)
            return REFUSE("merge(x, (d, e) -> f) makes one dim of two", "%s has more than %d dims", info(op)->name,
                          MAX_RANK);
        if (at < 0)
            space->dim[space->rank++] = *dim;
        else if (space->dim[at].size != dim->size || space->dim[at].padded != dim->padded ||
                 space->dim[at].full != dim->full)
            return REFUSE(NULL, "the operands of %s disagree on the size of '%s'", info(op)->name, dim->name);
        else if (!same_split(&space->dim[at], dim))
            return REFUSE("reshard one of them", "the operands of %s split '%s' differently", info(op)->name,
                          dim->name);
    }
    return true;
}

/* The dims of a pointwise op have the order of its largest operand, so that a bias does not transpose a tensor; dims of
 * other ops have the order of appearance. */
bool op_space(Module *m, const Op *op, Type *space)
{
    int largest = 0;
    *space = (Type){ 0 };
    const int count = op->args.count - (sum_before(op) != NULL); /* which has no part in the work */
    for (int i = 1; i < count; i++)
        if (arg(op, i)->type.rank > arg(op, largest)->type.rank)
            largest = i;
    if (info(op)->family == POINTWISE && op->args.count && !join(m, op, &arg(op, largest)->type, space))
        return false;
    for (int i = 0; i < count; i++)
        if (!join(m, op, &arg(op, i)->type, space))
            return false;
    for (int i = 0; i < op->attrs.over.count; i++)
        if (find_dim(space, op->attrs.over.name[i]) < 0)
            return REFUSE(NULL, "no operand of %s has a dim '%s'", info(op)->name, op->attrs.over.name[i]);
    return true;
}

double op_flops(Module *m, const Op *op)
{
    Type space;
    if (info(op)->flops == 0 || !op_space(m, op, &space))
        return 0;
    const Name key = op->attrs.own ? op->attrs.key : NULL; /* each query meets one block of keys */
    const int64_t blocks = key ? split_count(m, space.dim[find_dim(&space, key)].split) : 1;
    return (double)element_count(&space) * info(op)->flops / (double)blocks;
}

bool infer_partial(Module *m, const Op *op, Type *result)
{
    Linear linear = info(op)->linear;
    int first = linear == REST ? 1 : 0; /* of the operands that may be partial */
    while (first < op->args.count - 1 && chooses_zeros(op, first))
        first++;
    for (int i = 0; i < op->args.count; i++) {
        const Type *type = &arg(op, i)->type, *like = &arg(op, first < op->args.count ? first : 0)->type;
        bool may = linear == EACH || linear == ALL || (linear == FIRST && i == 0) || (linear == REST && i > 0);
        const Axes pending = pending_of(op, type);
        if (pending && (!may || type->by == BY_MAX))
            return REFUSE("all_reduce or reduce_scatter it first", "%s is not linear in %%%s, which is partial",
                          info(op)->name, arg(op, i)->name);
        if (!chooses_zeros(op, i) && (linear == ALL || (linear == REST && i > 0)) && pending != pending_of(op, like))
            return REFUSE("all_reduce the partial operand first", "%s would count %%%s once for each rank",
                          info(op)->name, arg(op, pending ? first : i)->name);
        if (linear == EACH && pending & result->partial)
            return REFUSE("all_reduce one of them first", "%s of two partial tensors", info(op)->name);
        result->partial |= pending;
    }
    return true;
}

bool each_axis_once(const Type *space, Axes pending)
{
    Axes seen = pending;
    for (int i = 0; i < space->rank; i++) {
        const Split *split = &space->dim[i].split;
        for (int j = 0; j < split->count; j++) {
            if (seen & 1u << split->axis[j])
                return false;
            seen |= 1u << split->axis[j];
        }
    }
    return true;
}
