/* infer_experts.c -- result types of the ops for mixtures of experts. */
#include "infer.h"

/* top_k x {dim, dims=[k]}: the new dim, behind all others, instead of `dim`. */
INFER(top_k)
{
    const Type *x = &arg(op, 0)->type;
    const Dim *to = &op->attrs.dims.dim[0];
    int at = op->attrs.dim ? find_dim(x, op->attrs.dim) : -1;
    if (at < 0 || op->attrs.dims.count != 1 || !is_float(x->dtype))
        return REFUSE(NULL, "top_k takes floating-point numbers with the dim of {dim}, and {dims=[name:size]}");
    if (to->size > x->dim[at].size || to->split.count || find_dim(x, to->name) >= 0)
        return REFUSE(NULL, "top_k: the largest %lld of %lld elements along '%s', as a whole dim '%s'",
                      (long long)to->size, (long long)x->dim[at].size, x->dim[at].name, to->name);
    results[0] = without_dim(*x, op->attrs.dim);
    results[0].dtype = I32;
    results[0].dim[results[0].rank++] = *to;
    return infer_partial(m, op, &(Type){ 0 });
}

/* The dims of `type` that are not in {over}, in its order. */
static void dims_not_over(const Op *op, const Type *type, Type *y)
{
    for (int i = 0; i < type->rank; i++)
        if (!has_name(&op->attrs.over, type->dim[i].name))
            y->dim[y->rank++] = type->dim[i];
}

/* place chosen {over, dims=[experts]}: the order of {over} is that of the queue, and of the memory. */
INFER(place)
{
    const Type *chosen = &arg(op, 0)->type;
    Type space, *y = &results[0];
    if (chosen->dtype != I32 || op->attrs.dims.count != 1)
        return REFUSE(NULL, "place takes an i32 tensor, {over} and {dims=[name:size]}");
    if (!op_space(m, op, &space) || !infer_partial(m, op, &(Type){ 0 }))
        return false;
    *y = (Type){ .dtype = I32 };
    dims_not_over(op, chosen, y);
    for (int i = 0; i < op->attrs.over.count; i++)
        y->dim[y->rank++] = chosen->dim[find_dim(chosen, op->attrs.over.name[i])];
    return true;
}

/* dispatch and combine: are chosen and place indices, with the same dims? */
static bool check_routes(Module *m, const Op *op)
{
    const Type *chosen = &arg(op, 1)->type, *place = &arg(op, 2)->type;
    if (!is_float(arg(op, 0)->type.dtype) || chosen->dtype != I32 || place->dtype != I32 ||
        dims_lacking(chosen, place).count || dims_lacking(place, chosen).count)
        return REFUSE(NULL, "%s takes floating-point numbers, and two i32 tensors with the same dims", info(op)->name);
    return true;
}

/* Adds the sums pending in x to those that `y` has from splits. */
static bool add_partial(Module *m, const Op *op, Type *y)
{
    if (arg(op, 0)->type.partial & y->partial)
        return REFUSE("all_reduce it first", "%s would count %%%s once for each rank", info(op)->name,
                      arg(op, 0)->name);
    return infer_partial(m, op, y) && (each_axis_once(y, y->partial) ||
                                       REFUSE("reshard one operand", "%s uses one mesh axis twice", info(op)->name));
}

static bool add_dims(Module *m, const Op *op, const Dim dims[], int count, Type *y)
{
    bool good = true;
    for (int i = 0; i < count && good; i++)
        good = append_dim(m, op, y, &dims[i]);
    return good;
}

/* dispatch x, chosen, place {over, dims=[experts, slots]}: [other dims of chosen, experts, slots, other dims of x].
 * Partial over the axes that split {over}: the ranks have different rows, and zeros for those of others. */
INFER(dispatch)
{
    const Type *x = &arg(op, 0)->type, *chosen = &arg(op, 1)->type;
    Type space, rest = { 0 }, *y = &results[0];
    if (!check_routes(m, op) || !op_space(m, op, &space))
        return false;
    if (op->attrs.dims.count != 2 || op->attrs.over.count == 0)
        return REFUSE(NULL, "dispatch needs {over, dims=[experts:size, slots:size]}");
    *y = (Type){ .dtype = x->dtype };
    dims_not_over(op, chosen, y);
    for (int i = 0; i < x->rank; i++)
        if (find_dim(chosen, x->dim[i].name) < 0)
            rest.dim[rest.rank++] = x->dim[i];
    for (int i = 0; i < op->attrs.over.count; i++) {
        int at = find_dim(chosen, op->attrs.over.name[i]);
        if (at < 0)
            return REFUSE(NULL, "%%%s has no dim '%s'", arg(op, 1)->name, op->attrs.over.name[i]);
        y->partial |= split_axes(chosen->dim[at].split);
    }
    return add_dims(m, op, op->attrs.dims.dim, 2, y) && add_dims(m, op, rest.dim, rest.rank, y) &&
           add_partial(m, op, y);
}

/* [dims of chosen but those in {over}, other dims of the rows].  Partial over the axes that split experts, slots and
 * {over}: ranks without the row give zeros. */
static bool picked_rows(Module *m, const Op *op, Type *y)
{
    const Type *x = &arg(op, 0)->type, *chosen = &arg(op, 1)->type;
    const Name picked[] = { op->attrs.dim, op->attrs.key };
    Type space, rest = { 0 };
    if (!check_routes(m, op) || !op_space(m, op, &space))
        return false;
    if (!each_axis_once(&space, x->partial)) /* a rank would lack rows that it picks */
        return REFUSE("reshard one operand", "%s uses one mesh axis twice", info(op)->name);
    *y = (Type){ .dtype = x->dtype };
    dims_not_over(op, chosen, y);
    for (int i = 0; i < 2; i++) {
        int at = picked[i] ? find_dim(x, picked[i]) : -1;
        if (at < 0)
            return REFUSE(NULL, "%s needs {dim=experts, key=slots}, dims of %%%s", info(op)->name, arg(op, 0)->name);
        y->partial |= split_axes(x->dim[at].split);
    }
    for (int i = 0; i < op->attrs.over.count; i++)
        y->partial |= split_axes(chosen->dim[find_dim(chosen, op->attrs.over.name[i])].split);
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i].name != picked[0] && x->dim[i].name != picked[1] && find_dim(chosen, x->dim[i].name) < 0)
            rest.dim[rest.rank++] = x->dim[i];
    return add_dims(m, op, rest.dim, rest.rank, y) && add_partial(m, op, y);
}

/* combine y, chosen, place {dim=experts, key=slots} */
INFER(combine)
{
    if (op->attrs.over.count)
        return REFUSE("use collect", "combine has no {over}");
    return picked_rows(m, op, &results[0]);
}

/* collect y, chosen, place[, weight] {dim=experts, key=slots, over}: in f32, as sums are. */
INFER(collect)
{
    const Type *weight = op->args.count == 4 ? &arg(op, 3)->type : NULL, *x = NULL, *chosen = NULL;
    if (op->args.count < 3 || op->args.count > 4 || !op->attrs.over.count)
        return REFUSE(NULL, "collect takes rows, two indices and perhaps weights, and {over}");
    x = &arg(op, 0)->type, chosen = &arg(op, 1)->type;
    for (int i = 0; i < op->attrs.over.count; i++)
        if (find_dim(chosen, op->attrs.over.name[i]) < 0 || find_dim(x, op->attrs.over.name[i]) >= 0)
            return REFUSE(NULL, "collect: {over} are dims of %%%s, and not of %%%s", arg(op, 1)->name,
                          arg(op, 0)->name);
    if (weight && (weight->dtype != F32 || dims_lacking(weight, chosen).count))
        return REFUSE(NULL, "collect takes weights in f32, with dims of %%%s", arg(op, 1)->name);
    if (!picked_rows(m, op, &results[0]))
        return false;
    results[0].dtype = F32;
    return true;
}
