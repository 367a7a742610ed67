/* shapes.c -- the built-in functions split, merge and broadcast, and ranges x[d = a : b -> e]: views of the same
 * memory.
 *
 * Views need dims without padding: one with padding is copied to a dim of its own, and back (repad).
 */
#include "functions.h"

/* --- Padding ----------------------------------------------------------------------------------- */

/* A dim of that size without padding, under a name of its own where there is some. */
static Dim bare(Lower *l, Dim dim)
{
    if (dim.padded == dim.size)
        return dim;
    const Name name = intern_format(l->m, "%s.bare", dim.name);
    add_made_dim(l->m, name, MADE_LIKE, dim.name);
    return (Dim){ .name = name, .size = dim.size, .padded = dim.size };
}

/* x with the dim `to`, of the same size, in place of `from`: a copy, since the pitch of rows differs. */
static Value *repad(Lower *l, Value *x, Dim from, Dim to)
{
    return from.name == to.name ? x : emit_gather(l, x, from.name, emit_iota(l, to));
}

/* --- Arguments --------------------------------------------------------------------------------- */

static bool repeats(const Dims *dims, const Dim *dim)
{
    for (int i = 0; i < dims->count; i++)
        if (dims->dim[i].name == dim->name)
            return true;
    return false;
}

/* The dims of (a, b, ...). */
static bool find_parts(Lower *l, const Ast *list, Dims *dims)
{
    for (const Ast *ast = list; ast; ast = ast->next) {
        Dim dim;
        if (!find_dim_named(l, ast->name, ast->loc, &dim) || !is_constant_size(l, dim.name, ast->loc))
            return false;
        if (repeats(dims, &dim))
            return complain(l, (Where){ .at = ast->loc }, "'%s' is given twice", dim.name);
        if (dims->count == MAX_RANK)
            return complain(l, (Where){ .at = ast->loc }, "a tensor has at most %d dims", MAX_RANK);
        dims->dim[dims->count++] = dim;
    }
    return true;
}

/* Have the parts together as many elements as the dim? */
static bool parts_fit(Lower *l, const Dims *parts, const Dim *whole, Loc at)
{
    double count = 1;
    const char *product = "";
    for (int i = 0; i < parts->count; i++) {
        count *= (double)parts->dim[i].size;
        product = arena_text(l->arena, "%s%s%s", product, i ? " * " : "", parts->dim[i].name);
    }
    if (count != (double)whole->size)
        complain(l, (Where){ .at = at }, "'%s' has %lld elements, but %s is %.15g", whole->name, (long long)whole->size,
                 product, count);
    return count == (double)whole->size;
}

/* --- split ------------------------------------------------------------------------------------- */

Value *split_dim(Lower *l, Value *x, Dim whole, Dims parts)
{
    const Dim dense = bare(l, whole);
    Attrs attrs = { .dim = dense.name };
    for (int i = 0; i < parts.count; i++)
        attrs.dims.dim[attrs.dims.count++] = bare(l, parts.dim[i]);
    x = EMIT(l, OP_split, attrs, repad(l, x, whole, dense));
    for (int i = 0; i < parts.count; i++)
        x = repad(l, x, attrs.dims.dim[i], parts.dim[i]);
    return x;
}

/* d -> (one, d): the other parts have one element. */
static Value *with_ones(Lower *l, Value *x, Dim whole, Dims parts)
{
    Attrs attrs = { 0 };
    for (int i = 0; i < parts.count; i++)
        if (parts.dim[i].name != whole.name)
            attrs.dims.dim[attrs.dims.count++] = parts.dim[i];
    return EMIT(l, OP_broadcast, attrs, x);
}

CALL(split)
{
    const Ast *from = a->renaming->init;
    Value *x = a->x[0];
    Name name;
    Dims parts = { 0 };
    if (!need_dim(l, x, a->ast[0], from->name, from->loc, &name) || !is_constant_size(l, name, from->loc) ||
        !find_parts(l, a->renaming->child, &parts))
        return wrong;
    bool keeps = false;
    for (int i = 0; i < parts.count; i++) {
        keeps |= parts.dim[i].name == name;
        if (parts.dim[i].name != name && !is_new(l, x, parts.dim[i].name, a->renaming->name_loc))
            return wrong;
    }
    const Dim whole = x->type.dim[find_dim(&x->type, name)];
    if (x->type.rank - 1 + parts.count > MAX_RANK)
        complain(l, (Where){ .at = a->call->name_loc }, "a tensor has at most %d dims", MAX_RANK);
    else if (parts_fit(l, &parts, &whole, a->renaming->loc))
        return tensor_operand(keeps ? with_ones(l, x, whole, parts) : split_dim(l, x, whole, parts));
    return wrong;
}

/* --- merge ------------------------------------------------------------------------------------- */

/* x with these dims next to each other, in this order, where the last of them was. */
static Value *adjacent(Lower *l, Value *x, const Dims *parts)
{
    Names order = { 0 };
    for (int i = 0; x && i < x->type.rank; i++) {
        const Name name = x->type.dim[i].name;
        if (name == parts->dim[parts->count - 1].name)
            for (int j = 0; j < parts->count; j++)
                add_name(&order, parts->dim[j].name);
        else if (!repeats(parts, &x->type.dim[i]))
            add_name(&order, name);
    }
    return emit_in_order(l, x, order);
}

static Value *merge_dims(Lower *l, Value *x, Dims parts, Dim whole)
{
    const Dim dense = bare(l, whole);
    Attrs attrs = { .dims = { 1, { dense } } };
    Dims flat = { 0 };
    for (int i = 0; i < parts.count; i++) {
        flat.dim[flat.count++] = bare(l, parts.dim[i]);
        x = repad(l, x, parts.dim[i], flat.dim[i]);
        add_name(&attrs.over, flat.dim[i].name);
    }
    return repad(l, EMIT(l, OP_merge, attrs, adjacent(l, x, &flat)), dense, whole);
}

CALL(merge)
{
    const Ast *to = a->renaming;
    Value *x = a->x[0];
    Dims parts = { 0 };
    Dim whole;
    Name name;
    if (!find_parts(l, to->child, &parts) || !find_dim_named(l, to->name, to->name_loc, &whole) ||
        !is_constant_size(l, whole.name, to->name_loc) || !is_new(l, x, whole.name, to->name_loc))
        return wrong;
    int i = 0;
    for (const Ast *ast = to->child; ast; ast = ast->next, i++) {
        if (!need_dim(l, x, a->ast[0], ast->name, ast->loc, &name))
            return wrong;
        parts.dim[i] = x->type.dim[find_dim(&x->type, name)];
    }
    return parts_fit(l, &parts, &whole, to->loc) ? tensor_operand(merge_dims(l, x, parts, whole)) : wrong;
}

/* --- broadcast --------------------------------------------------------------------------------- */

CALL(broadcast)
{
    Attrs attrs = { 0 };
    for (int i = 0; i < a->dims.count; i++) {
        const Loc at = a->dim_ast[i]->loc;
        Dim *dim = &attrs.dims.dim[attrs.dims.count++];
        if (a->x[0]->type.rank + a->dims.count > MAX_RANK)
            return complain(l, (Where){ .at = a->call->name_loc }, "a tensor has at most %d dims", MAX_RANK), wrong;
        if (!find_dim_named(l, a->dims.name[i], at, dim) || !is_new(l, a->x[0], dim->name, at))
            return wrong;
        if (scan_along(l, dim->name))
            return complain(l, (Where){ .at = at, .help = "do this before it, or after it" },
                            "a scan sees one position at a time: in it, no tensor has the dim '%s'", dim->name),
                   wrong;
    }
    return tensor_operand(EMIT(l, OP_broadcast, attrs, a->x[0]));
}
