/* library.c -- the built-in functions rope, cumsum, cummax, iota, dropout, training and rename. */
#include "functions.h"

#include <string.h>

/* --- Integers beside a tensor: segments, positions ------------------------------------------ */

Value *integers_argument(Lower *l, const Arguments *a, int keyword, const Value *x, Name feature)
{
    const Ast *ast = a->keyword[keyword];
    Operand operand = ast ? lower_expr(l, ast->child) : wrong;
    set_place(l, a->call->name_loc);
    if (operand.kind == WRONG)
        return NULL;
    const Type *type = operand.kind == TENSOR ? &operand.value->type : NULL;
    Type allowed = without_dim(x->type, feature);
    const Names more = type ? dims_lacking(type, &allowed) : (Names){ 0 };
    allowed.dtype = I32;
    if (type && type->dtype == I32 && !more.count)
        return operand.value;
    return complain(l, (Where){ .at = ast->child->loc }, "'%s' must be i32 over dims of %s, not %s", ast->name,
                    dims_text(l, &allowed), type ? type_words(l, type) : "a number"),
           NULL;
}

Value *with_groups(Lower *l, Value *part, const Type *x, const Type *of, const Attrs *attrs)
{
    Attrs spread = { 0 };
    int groups = 0, last = -2;
    for (int i = 0; part && i < x->rank; i++) {
        const Name name = x->dim[i].name;
        const bool has = find_dim(&part->type, name) >= 0;
        if (name == attrs->seq || name == attrs->feature || find_dim(of, name) < 0)
            continue;
        const bool follows = last == i - 1 && has == (find_dim(&part->type, x->dim[last].name) >= 0);
        groups += !follows;
        last = i;
        if (!has)
            spread.dims.dim[spread.dims.count++] = x->dim[i];
    }
    if (groups <= 2 || !spread.dims.count)
        return part;
    Attrs as_in_x = { 0 };
    part = EMIT(l, OP_broadcast, spread, part);
    for (int i = 0; part && i < x->rank; i++)
        if (find_dim(&part->type, x->dim[i].name) >= 0)
            add_name(&as_in_x.order, x->dim[i].name);
    for (int i = 0; part && i < part->type.rank; i++) /* the keys of a bias */
        if (find_dim(x, part->type.dim[i].name) < 0)
            add_name(&as_in_x.order, part->type.dim[i].name);
    return EMIT(l, OP_reorder, as_in_x, part);
}

static bool style_argument(Lower *l, const Ast *keyword, bool *interleaved)
{
    const Ast *word = keyword ? keyword->child : NULL;
    *interleaved = word && word->kind == A_NAME && strcmp(word->name, "interleaved") == 0;
    if (!word || *interleaved || (word->kind == A_NAME && strcmp(word->name, "half") == 0))
        return true;
    return complain(l, (Where){ .at = word->loc }, "'style' must be half or interleaved");
}

CALL(rope)
{
    Attrs attrs = { .seq = a->dims.name[0], .feature = a->dims.name[1] };
    double stretch;
    const Dim *head = &a->x[0]->type.dim[find_dim(&a->x[0]->type, attrs.feature)];
    if (!number_argument(l, a->keyword[0], 10000, &attrs.base) || !style_argument(l, a->keyword[1], &attrs.interleaved))
        return wrong;
    if (head->size % 2 || attrs.base <= 0)
        return complain(l, (Where){ .at = head->size % 2 ? a->dim_ast[1]->loc : a->keyword[0]->child->loc },
                        head->size % 2 ? "rope rotates pairs, but '%s' has %lld elements" : "'base' must be above 0",
                        head->name, (long long)head->size),
               wrong;
    if (!number_argument(l, a->keyword[3], 1, &stretch))
        return wrong;
    if (stretch <= 0)
        return complain(l, (Where){ .at = a->keyword[3]->child->loc }, "'stretch' must be above 0"), wrong;
    attrs.stretch = stretch == 1 ? 0 : stretch;
    Value *position = integers_argument(l, a, 2, a->x[0], attrs.feature);
    if (a->keyword[2] && !position)
        return wrong;
    const Type *x = &a->x[0]->type;
    Value *const operands[] = { a->x[0], with_groups(l, position, x, x, &attrs) };
    return tensor_operand(emit(l, OP_rope, attrs, position ? 2 : 1, operands));
}

/* --- Sums and maxima so far ------------------------------------------------------------------ */

CALL(cumulative)
{
    const bool is_max = strcmp(a->call->name, "cummax") == 0;
    const Type *x = &a->x[0]->type;
    Attrs attrs = { .dim = a->dims.name[0] };
    if (!flag_argument(l, a->keyword[0], &attrs.exclusive) || !flag_argument(l, a->keyword[1], &attrs.reverse))
        return wrong;
    if (x->dtype == BOOL || (is_max && x->dtype != I32))
        complain(l, (Where){ .at = a->ast[0]->loc, .help = "cast(..., i32)" }, "%s takes %s, not %s", a->call->name,
                 is_max ? "i32" : "numbers", type_words(l, x));
    else if (attrs.dim == l->m->batch)
        complain(l, (Where){ .at = a->dim_ast[0]->loc },
                 "'%s' is the micro-batch: a model cannot depend on positions in it", attrs.dim);
    else
        return tensor_operand(EMIT(l, is_max ? OP_cummax : OP_cumsum, attrs, a->x[0]));
    return wrong;
}

/* --- Places ------------------------------------------------------------------------------------- */

/* What only a batch that is computed at once has. */
static Operand of_whole_batch(Lower *l, Value *value, Loc at)
{
    if (value)
        note_mixing(l, value, (Where){ .at = at });
    return tensor_operand(value);
}

CALL(iota)
{
    Dim dim;
    const Ast *name = a->call->child;
    if (name->kind == A_NAME && dims_named(l, name->name))
        return tensor_operand(place_in_matrix(l, &a->dims));
    const Symbol *symbol = find_symbol_here(&l->globals, a->dims.name[0]);
    const bool counts_records = symbol && (symbol == l->batch || symbol->is_others);
    if (!counts_records && has_no_positions(l, a->dims.name[0], a->dim_ast[0]->loc))
        return wrong;
    find_dim_named(l, a->dims.name[0], a->dim_ast[0]->loc, &dim);
    return counts_records ? of_whole_batch(l, emit_iota(l, dim), a->dim_ast[0]->loc)
                          : tensor_operand(emit_iota(l, dim));
}

/* The smallest first, of equal ones the first; as places, so that the dim keeps its name. */
CALL(argsort)
{
    const Type *x = &a->x[0]->type;
    Dim sorted = x->dim[find_dim(x, a->dims.name[0])];
    bool reverse;
    if (!flag_argument(l, a->keyword[0], &reverse) || has_no_positions(l, sorted.name, a->dim_ast[0]->loc))
        return wrong;
    const Name own = sorted.name;
    sorted.name = intern_format(l->m, "%s.sorted", own);
    Value *key = reverse ? a->x[0] : EMIT(l, OP_neg, NO_ATTRS, a->x[0]);
    Value *places = EMIT(l, OP_top_k, ((Attrs){ .dim = own, .dims = { 1, { sorted } } }), key);
    return tensor_operand(EMIT(l, OP_rename, ((Attrs){ .dim = sorted.name, .to = own }), places));
}

/* Sums of rows by place: the reverse of x[d = at]. */
CALL(add_rows)
{
    const Ast *from = a->renaming->child;
    Value *y = a->x[0], *at = a->x[1];
    Name rows;
    Dim to;
    if (!need_dim(l, y, a->ast[0], from->name, from->loc, &rows) ||
        !need_dim(l, at, a->ast[1], from->name, from->loc, &rows) ||
        !find_dim_named(l, a->renaming->name, a->renaming->name_loc, &to) || has_no_positions(l, rows, from->loc) ||
        has_no_positions(l, to.name, a->renaming->name_loc))
        return wrong;
    if (at->type.dtype != I32 || dims_lacking(&at->type, &y->type).count)
        complain(l, (Where){ .at = a->ast[1]->loc, .also = { a->ast[0]->loc } },
                 "the positions of rows must be i32 over dims of %s, not %s", dims_text(l, &y->type),
                 is_float(at->type.dtype) ? "floating-point numbers" : type_words(l, &at->type));
    else if (find_dim(&y->type, to.name) >= 0)
        complain(l, (Where){ .at = a->renaming->name_loc, .also = { a->ast[0]->loc } }, "%s already has a dim '%s'",
                 type_words(l, &y->type), to.name);
    else if (index_fits(l, at, &to, NULL, a->ast[1]->loc))
        return tensor_operand(
            EMIT(l, OP_scatter_add, ((Attrs){ .over = { 1, { rows } }, .dims = { 1, { to } } }), y, at));
    return wrong;
}

/* --- Dropout ------------------------------------------------------------------------------- */

CALL(dropout)
{
    if (!(a->number.value >= 0 && a->number.value < 1))
        return complain(l, (Where){ .at = a->number_ast->loc },
                        "the rate of dropout must be at least 0 and below 1, not %s",
                        constant_text(l->arena, a->number)),
               wrong;
    if (a->number.value == 0 || evaluates(l))
        return tensor_operand(unlabelled(l, a->x[0]));
    Attrs attrs = { .rate = a->number.value, .instance = l->now.dropout_count++ };
    Value *key = dropout_key(l, l->frame), *origin = dropout_origin(l);
    return tensor_operand(EMIT(l, OP_dropout, attrs, a->x[0], key, origin));
}

/* --- Training, or evaluation ---------------------------------------------------------------- */

/* Both are lowered for every function, so that a model has the same parameters and errors in each. */
CALL(training)
{
    Value *x[2];
    if (!unify(l, a->call->name_loc, "choose between", a->ast, a->operand, x))
        return wrong;
    const Type *one = &x[0]->type, *other = &x[1]->type;
    bool same = one->rank == other->rank;
    for (int i = 0; same && i < one->rank; i++)
        same = find_dim(other, one->dim[i].name) >= 0;
    if (!same)
        return complain(l, (Where){ .at = a->call->name_loc, .also = { a->ast[0]->loc, a->ast[1]->loc } },
                        "cannot choose between %s and %s: training(a, b) takes two values with the same dims",
                        dims_text(l, one), dims_text(l, other)),
               wrong;
    l->is_evaluated_otherwise = true;
    return tensor_operand(unlabelled(l, x[evaluates(l)]));
}

/* --- Renaming ------------------------------------------------------------------------------ */

CALL(others)
{
    const Ast *from = a->renaming->child;
    Name name;
    Dim to;
    if (!need_dim(l, a->x[0], a->ast[0], from->name, from->loc, &name) ||
        !find_dim_named(l, a->renaming->name, a->renaming->name_loc, &to))
        return wrong;
    if (name != l->m->batch)
        complain(l, (Where){ .at = from->loc, .help = "rename(x, a -> b) of another dim" },
                 "others() is of the micro-batch, and '%s' is not", name);
    else if (find_dim(&a->x[0]->type, to.name) >= 0)
        complain(l, (Where){ .at = a->renaming->name_loc }, "%s already has a dim '%s'", type_words(l, &a->x[0]->type),
                 to.name);
    else
        return of_whole_batch(l, EMIT(l, OP_rename, ((Attrs){ .dim = name, .to = to.name }), a->x[0]), from->loc);
    return wrong;
}

CALL(rename)
{
    const Ast *from = a->renaming->child;
    const Names *group = dims_named(l, from->name), *other = dims_named(l, a->renaming->name);
    Name name;
    Dim to;
    if (group && other)
        return rename_group(l, a, group, other);
    if (!need_dim(l, a->x[0], a->ast[0], from->name, from->loc, &name) ||
        !find_dim_named(l, a->renaming->name, a->renaming->name_loc, &to))
        return wrong;
    const Type *x = &a->x[0]->type;
    const Dim *dim = &x->dim[find_dim(x, name)];
    Where at = { .at = a->renaming->name_loc, .also = { from->loc } };
    if (name == l->m->batch)
        at.help = "others(x, batch -> d), with a new name d, has all records of the batch; or let a record be a group: "
                  "input x : [batch, pair, ...], and rename 'pair'";
    if (varies_by_micro_batch(l, name) || varies_by_micro_batch(l, to.name))
        complain(l, at, "the size of '%s' %s the micro-batch: it cannot be renamed",
                 varies_by_micro_batch(l, name) ? name : to.name,
                 name == l->m->batch || to.name == l->m->batch ? "is" : "depends on");
    else if (find_dim(x, to.name) >= 0)
        complain(l, at, "%s already has a dim '%s'", type_words(l, x), to.name);
    else if (dim->size != to.size)
        complain(l, at, "'%s' has %lld elements and '%s' has %lld", name, (long long)dim->size, to.name,
                 (long long)to.size);
    else if (dim->padded != to.padded) /* the pitch of rows changes: a copy, not a view */
        return tensor_operand(emit_gather(l, a->x[0], name, emit_iota(l, to)));
    else
        return tensor_operand(EMIT(l, OP_rename, ((Attrs){ .dim = name, .to = to.name }), a->x[0]));
    return wrong;
}
