/* conv.c -- conv(x, w, row -> (y, ky), ..., d, ...): a product of windows of x with w; shift(x, d, n).
 *
 * The window at y has elements y * stride + ky * dilation - padding of the row, zeros outside of it.  Windows that
 * neither overlap nor leave gaps, as those of patches, are a split; others are gathered, as what is shifted is.
 */
#include "functions.h"

typedef struct {
    int64_t stride, padding, dilation;
    bool causal;
} Steps;

typedef struct {
    Dim from, to, tap;
    int64_t before, after; /* zeros around `from` */
    Name padded;           /* the dim with these zeros */
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

/* The number of windows; a causal window ends at its place.  0: the dim is too short for one. */
static int64_t windows_along(Window *w, const Steps *steps)
{
    const int64_t reach = steps->dilation * (w->tap.size - 1);
    w->before = steps->causal ? reach : steps->padding;
    w->after = steps->causal ? 0 : steps->padding;
    const int64_t rest = w->before + w->from.size + w->after - reach - 1;
    return rest < 0 ? 0 : rest / steps->stride + 1;
}

/* How to get as many windows as the dim `to` has elements. */
static const char *windows_help(Lower *l, const Window *w, const Steps *steps, int64_t count)
{
    Arena *arena = l->arena;
    const int64_t reach = steps->dilation * (w->tap.size - 1);
    if (w->to.size != w->from.size || steps->stride > 1)
        return count ? arena_text(arena, "name a dim of %lld elements, or change the padding", (long long)count)
                     : "use fewer taps, or more padding";
    const char *even = reach % 2 ? "" : arena_text(arena, "padding = %lld, or ", (long long)reach / 2);
    return arena_text(arena, "%scausal = true has one window for each element", even);
}

/* Has x, or its windows so far, a dim of this name? */
static bool is_taken(const Value *x, const Window windows[], int count, Name dim)
{
    bool taken = find_dim(&x->type, dim) >= 0;
    for (int i = 0; i < count; i++)
        taken |= dim == windows[i].to.name || dim == windows[i].tap.name;
    return taken;
}

/* The i-th of the windows. */
static bool find_window(Lower *l, const Arguments *a, const Steps *steps, Window windows[], int i)
{
    Window *w = &windows[i];
    const Value *x = a->x[0];
    const Ast *ast = a->window[i], *to = ast->child, *tap = to->next;
    Name from, of_taps;
    if (tap->next)
        return complain(l, (Where){ .at = ast->loc },
                        "windows along a dim have two dims: their positions and their elements");
    if (!need_dim(l, x, a->ast[0], ast->init->name, ast->init->loc, &from) ||
        !find_dim_named(l, to->name, to->loc, &w->to) || !find_dim_named(l, tap->name, tap->loc, &w->tap) ||
        !need_dim(l, a->x[1], a->ast[1], tap->name, tap->loc, &of_taps))
        return false;
    w->from = x->type.dim[find_dim(&x->type, from)];
    if (has_no_positions(l, w->from.name, ast->init->loc) || has_no_positions(l, w->to.name, to->loc) ||
        has_no_positions(l, w->tap.name, tap->loc))
        return false;
    const Name again = w->to.name != w->from.name && is_taken(x, windows, i, w->to.name)   ? w->to.name
                       : w->to.name == w->tap.name || is_taken(x, windows, i, w->tap.name) ? w->tap.name
                                                                                           : NULL;
    if (again)
        return complain(l, (Where){ .at = ast->loc }, "%s already has a dim '%s'", type_words(l, &x->type), again);
    const int64_t count = windows_along(w, steps);
    if (count != w->to.size)
        complain(l, (Where){ .at = to->loc, .help = windows_help(l, w, steps, count) },
                 "'%s' has %lld elements, but there are %lld windows of %lld along '%s', which has %lld", w->to.name,
                 (long long)w->to.size, (long long)count, (long long)w->tap.size, w->from.name,
                 (long long)w->from.size);
    return count == w->to.size;
}

/* --- Windows ----------------------------------------------------------------------------------- */

static Value *integer(Lower *l, int64_t number) { return emit_number(l, (double)number, I32); }

/* x with its dim under a name of its own: two dims of one name may be split differently. */
static Value *renamed_from(Lower *l, Value *x, Name dim, Name *from)
{
    *from = intern_format(l->m, "%s.from", dim);
    add_made_dim(l->m, *from, MADE_LIKE, dim);
    return EMIT(l, OP_rename, ((Attrs){ .dim = dim, .to = *from }), x);
}

/* Do the windows neither overlap nor leave gaps? */
static bool is_split(const Window *w, const Steps *steps)
{
    return w->to.name != w->from.name && steps->stride == w->tap.size && steps->dilation == 1 && !w->before &&
           !w->after && w->to.size * w->tap.size == w->from.size;
}

/* x with the zeros that its windows see, along w->padded. */
static Value *surrounded(Lower *l, Value *x, Window *w)
{
    const int64_t size = w->before + w->from.size + w->after;
    w->padded = w->from.name;
    if (size > w->from.size) {
        w->padded = intern_format(l->m, "%s.pad%lld", w->from.name, (long long)size);
        const Attrs attrs = { .dim = w->from.name,
                              .dims = { 1, { { .name = w->padded, .size = size, .padded = size } } },
                              .index = w->before };
        return EMIT(l, OP_pad, attrs, x);
    }
    return w->to.name == w->from.name ? renamed_from(l, x, w->from.name, &w->padded) : x;
}

static Value *windows_of(Lower *l, Value *x, const Window *w, const Steps *steps)
{
    if (is_split(w, steps))
        return split_dim(l, x, w->from, (Dims){ 2, { w->to, w->tap } });
    Value *at = two(l, OP_mul, emit_iota(l, w->to), integer(l, steps->stride));
    Value *tap = two(l, OP_mul, emit_iota(l, w->tap), integer(l, steps->dilation));
    return EMIT(l, OP_gather, (Attrs){ .dim = w->padded }, x, two(l, OP_add, at, tap));
}

/* x with the dims that the product sums over innermost. */
static Value *with_rows(Lower *l, Value *x, const Names *over)
{
    Names order = { 0 };
    for (int inside = 0; x && inside < 2; inside++)
        for (int i = 0; i < x->type.rank; i++)
            if (has_name(over, x->type.dim[i].name) == (inside == 1))
                add_name(&order, x->type.dim[i].name);
    return emit_in_order(l, x, order);
}

/* w with those dims in the order that they have in x. */
static Value *with_columns(Lower *l, Value *w, const Value *x, const Names *over)
{
    Names order = { 0 }, summed = { 0 };
    for (int i = 0; x && i < x->type.rank; i++)
        if (has_name(over, x->type.dim[i].name))
            add_name(&summed, x->type.dim[i].name);
    for (int i = 0, next = 0; x && i < w->type.rank; i++)
        add_name(&order, has_name(over, w->type.dim[i].name) ? summed.name[next++] : w->type.dim[i].name);
    return x ? emit_in_order(l, w, order) : NULL;
}

/* Has w a dim that is neither one of x nor along a window? */
static bool has_columns(const Value *x, const Value *w, const Arguments *a)
{
    int alone = w->type.rank;
    for (int i = 0; i < x->type.rank; i++)
        alone -= find_dim(&w->type, x->type.dim[i].name) >= 0;
    return alone > a->nwindows;
}

/* The windows are gathered along one dim after the other, each time from rows of what is summed: so they lie as a
 * matrix, and the small tensors are reordered, not the windows.  A convolution of each channel by itself is no product
 * of matrices, and nothing is reordered. */
static Value *convolved(Lower *l, Value *x, Value *w, Names over, bool is_matrix, const Steps *steps, int count,
                        Window windows[])
{
    for (int i = 0; i < count; i++)
        x = is_split(&windows[i], steps) ? x : surrounded(l, x, &windows[i]);
    for (int i = 0; i < count; i++) {
        x = windows_of(l, is_matrix ? with_rows(l, x, &over) : x, &windows[i], steps);
        add_name(&over, windows[i].tap.name);
    }
    x = is_matrix ? with_rows(l, x, &over) : x;
    return EMIT(l, OP_dot, (Attrs){ .over = over }, x, is_matrix ? with_columns(l, w, x, &over) : w);
}

CALL(conv)
{
    Steps steps = { .stride = 1, .dilation = 1 };
    Window windows[MAX_RANK];
    Value *x = a->x[0], *w = a->x[1];
    Names over = { 0 };
    Name name;
    if (!find_steps(l, a, &steps))
        return wrong;
    if (!a->nwindows)
        return complain(l, (Where){ .at = a->call->name_loc },
                        "along which dim are the windows of conv? row -> (y, ky)"),
               wrong;
    for (int i = 0; i < a->nwindows; i++)
        if (!find_window(l, a, &steps, windows, i))
            return wrong;
    for (int i = 0; i < a->dims.count; i++) {
        if (!need_dim(l, w, a->ast[1], a->dims.name[i], a->dim_ast[i]->loc, &name))
            return wrong;
        add_name(&over, name);
    }
    return tensor_operand(convolved(l, x, w, over, has_columns(x, w, a), &steps, a->nwindows, windows));
}

/* --- shift ------------------------------------------------------------------------------------- */

/* The elements along `dim` at `place`, zeros where that is outside. */
static Value *gather_inside(Lower *l, Value *x, Dim dim, Value *place)
{
    Name from;
    Value *inside = two(l, OP_mul, two(l, OP_ge, place, integer(l, 0)), two(l, OP_lt, place, integer(l, dim.size)));
    place = two(l, OP_minimum, two(l, OP_maximum, place, integer(l, 0)), integer(l, dim.size - 1));
    x = renamed_from(l, x, dim.name, &from);
    x = EMIT(l, OP_gather, (Attrs){ .dim = from }, x, place);
    return EMIT(l, OP_where, NO_ATTRS, inside, x, emit_number(l, 0, x ? x->type.dtype : F32));
}

CALL(shift)
{
    const Type *x = &a->x[0]->type;
    const Dim dim = x->dim[find_dim(x, a->dims.name[0])];
    int64_t by;
    if (x->dtype == BOOL)
        complain(l, (Where){ .at = a->ast[0]->loc, .help = "cast(..., i32)" }, "shift takes numbers, not %s",
                 type_words(l, x));
    else if (!has_no_positions(l, dim.name, a->dim_ast[0]->loc) &&
             integer_of(l, a->number_ast, "the number of positions", 1 - dim.size, dim.size - 1, &by))
        return tensor_operand(by ? gather_inside(l, a->x[0], dim, two(l, OP_sub, emit_iota(l, dim), integer(l, by)))
                                 : a->x[0]);
    return wrong;
}
