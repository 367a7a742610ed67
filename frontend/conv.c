/* conv.c -- conv(x, w, row -> (y, ky), ..., d, ...): a product of windows of x with w; shift(x, d, n).
 *
 * The window at y has elements y * stride + ky * dilation - padding of the row, zeros outside of it.  Windows that
 * neither overlap nor leave gaps, as those of patches, are a split; others are gathered, as what is shifted is.
 */
#include "builtins.h"

static const Operand wrong = { .kind = WRONG };

typedef struct {
    int64_t stride, padding, dilation;
    bool causal;
} Steps;

typedef struct {
    Dim from, to, tap;
    int64_t before, after; /* zeros around `from` */
} Window;

/* --- Arguments --------------------------------------------------------------------------------- */

static bool find_steps(Lower *l, const Arguments *a, Steps *steps)
{
    static const char *const what[] = { "'stride'", "'padding'", "'dilation'" };
    int64_t *const number[] = { &steps->stride, &steps->padding, &steps->dilation };
    for (int i = 0; i < 3; i++)
        if (a->keyword[i] && !integer_of(l, a->keyword[i]->child, what[i], i == 1 ? 0 : 1, 1 << 20, number[i]))
            return false;
    if (!flag_argument(l, a->keyword[3], &steps->causal))
        return false;
    if (steps->causal && a->keyword[1])
        complain(l, (Where){ .at = a->keyword[1]->loc, .help = "leave 'padding' out" },
                 "a causal window has as much padding in front as it needs, and none behind");
    return !steps->causal || !a->keyword[1];
}

/* The number of windows, of which a causal one ends at its place; 0: the dim is too short for one. */
static int64_t windows_along(Window *w, const Steps *steps)
{
    const int64_t reach = steps->dilation * (w->tap.size - 1);
    w->before = steps->causal ? reach : steps->padding;
    w->after = steps->causal ? 0 : steps->padding;
    const int64_t rest = w->before + w->from.size + w->after - reach - 1;
    return rest < 0 ? 0 : rest / steps->stride + 1;
}

static bool find_window(Lower *l, const Arguments *a, const Value *x, const Ast *ast, const Steps *steps, Window *w)
{
    const Ast *to = ast->child, *tap = to->next;
    Name from, of_taps;
    if (tap->next) {
        complain(l, (Where){ .at = ast->loc }, "windows along a dim have two dims: their places and their elements");
        return false;
    }
    if (!need_dim(l, x, a->ast[0], ast->init->name, ast->init->loc, &from) ||
        !find_dim_named(l, to->name, to->loc, &w->to) || !find_dim_named(l, tap->name, tap->loc, &w->tap) ||
        !need_dim(l, a->x[1], a->ast[1], tap->name, tap->loc, &of_taps))
        return false;
    w->from = x->type.dim[find_dim(&x->type, from)];
    if (has_no_positions(l, w->from.name, ast->init->loc) || has_no_positions(l, w->to.name, to->loc) ||
        has_no_positions(l, w->tap.name, tap->loc))
        return false;
    const bool again = w->to.name != w->from.name && find_dim(&x->type, w->to.name) >= 0;
    if (again || w->to.name == w->tap.name || find_dim(&x->type, w->tap.name) >= 0) {
        complain(l, (Where){ .at = ast->loc }, "%s already has a dim '%s'", type_words(l, &x->type),
                 again ? w->to.name : w->tap.name);
        return false;
    }
    const int64_t count = windows_along(w, steps);
    if (count != w->to.size)
        complain(l, (Where){ .at = to->loc },
                 "'%s' has %lld elements, but there are %lld windows of %lld along '%s', which has %lld", w->to.name,
                 (long long)w->to.size, (long long)count, (long long)w->tap.size, w->from.name,
                 (long long)w->from.size);
    return count == w->to.size;
}

/* --- Windows ----------------------------------------------------------------------------------- */

static Value *integer(Lower *l, int64_t number) { return emit_number(l, (double)number, I32); }

static Value *two(Lower *l, OpKind kind, Value *a, Value *b) { return EMIT(l, kind, NO_ATTRS, a, b); }

/* Gathers elements along `dim` at `place`, some of which are outside of it if `beyond`: there are zeros. */
static Value *gather_places(Lower *l, Value *x, Dim dim, Value *place, bool beyond)
{
    Value *inside = NULL;
    Name from = dim.name;
    if (beyond) {
        inside = two(l, OP_mul, two(l, OP_ge, place, integer(l, 0)), two(l, OP_lt, place, integer(l, dim.size)));
        place = two(l, OP_minimum, two(l, OP_maximum, place, integer(l, 0)), integer(l, dim.size - 1));
    }
    if (place && find_dim(&place->type, from) >= 0) { /* two dims of one name, which may be split differently */
        from = intern_format(l->m, "%s.from", dim.name);
        declare_like(l->m, from, dim.name);
        x = EMIT(l, OP_rename, ((Attrs){ .dim = dim.name, .to = from }), x);
    }
    const DType dtype = x ? x->type.dtype : F32;
    x = EMIT(l, OP_gather, (Attrs){ .dim = from }, x, place);
    return inside ? EMIT(l, OP_where, NO_ATTRS, inside, x, emit_number(l, 0, dtype)) : x;
}

static Value *windows_of(Lower *l, Value *x, const Window *w, const Steps *steps)
{
    const bool is_split = w->to.name != w->from.name && steps->stride == w->tap.size && steps->dilation == 1 &&
                          !w->before && !w->after && w->to.size * w->tap.size == w->from.size;
    if (is_split)
        return split_dim(l, x, w->from, (Dims){ 2, { w->to, w->tap } });
    Value *at = two(l, OP_mul, emit_iota(l, w->to), integer(l, steps->stride));
    Value *tap = two(l, OP_mul, emit_iota(l, w->tap), integer(l, steps->dilation));
    const int64_t last = (w->to.size - 1) * steps->stride + (w->tap.size - 1) * steps->dilation - w->before;
    Value *place = two(l, OP_sub, two(l, OP_add, at, tap), integer(l, w->before));
    return gather_places(l, x, w->from, place, w->before || last >= w->from.size);
}

CALL(conv)
{
    Steps steps = { .stride = 1, .dilation = 1 };
    Value *x = a->x[0];
    Names over = { 0 };
    Name name;
    if (!find_steps(l, a, &steps))
        return wrong;
    for (int i = 0; i < a->nwindows; i++) {
        Window w;
        if (!find_window(l, a, x, a->window[i], &steps, &w) || !(x = windows_of(l, x, &w, &steps)))
            return wrong;
        add_name(&over, w.tap.name);
    }
    if (!over.count) {
        complain(l, (Where){ .at = a->call->name_loc }, "along which dim are the windows of conv? row -> (y, ky)");
        return wrong;
    }
    for (int i = 0; i < a->dims.count; i++) {
        if (!need_dim(l, a->x[1], a->ast[1], a->dims.name[i], a->dim_ast[i]->loc, &name))
            return wrong;
        add_name(&over, name);
    }
    return tensor_operand(EMIT(l, OP_dot, (Attrs){ .over = over }, x, a->x[1]));
}

/* --- shift ------------------------------------------------------------------------------------- */

CALL(shift)
{
    const Type *x = &a->x[0]->type;
    const Dim dim = x->dim[find_dim(x, a->dims.name[0])];
    int64_t by;
    if (x->dtype == BOOL)
        complain(l, (Where){ .at = a->ast[0]->loc, .help = "cast(..., i32)" }, "shift takes numbers, not %s",
                 type_words(l, x));
    else if (!has_no_positions(l, dim.name, a->dim_ast[0]->loc) &&
             integer_of(l, a->number_ast, "the number of places", 1 - dim.size, dim.size - 1, &by))
        return tensor_operand(
            gather_places(l, a->x[0], dim, two(l, OP_sub, emit_iota(l, dim), integer(l, by)), by != 0));
    return wrong;
}
