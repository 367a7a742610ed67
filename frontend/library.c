/* library.c -- the built-in functions attend, rope, cumsum, cummax, dropout and rename. */
#include "builtins.h"

#include <math.h>
#include <string.h>

static const Operand wrong = { .kind = WRONG };

/* --- Integers beside a tensor: segments, positions ------------------------------------------ */

/* An i32 tensor over dims of x, but not the feature dim; NULL if absent or after reporting. */
static Value *integers_argument(Lower *l, const Arguments *a, int keyword, const Value *x, Name feature)
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
    complain(l, (Where){ .at = ast->child->loc }, "'%s' must be i32 over dims of %s, not %s", ast->name,
             dims_text(l, &allowed), type ? type_words(l, type) : "a number");
    return NULL;
}

/* Kernels support two groups of dims: of those of x that `of` has too, as they follow each other, those that `part` has
 * and those that it lacks.  More: then it gets all of them. */
static Value *with_groups(Lower *l, Value *part, const Type *x, const Type *of, const Attrs *attrs)
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
    return groups > 2 && spread.dims.count ? EMIT(l, OP_broadcast, spread, part) : part;
}

/* --- Attention ----------------------------------------------------------------------------- */

/* k or v: it has the sequence and the feature dim, and of the others only those of q. */
static bool key_fits(Lower *l, const Arguments *a, int i, Name feature)
{
    const Value *q = a->x[0], *k = a->x[i];
    Name name;
    for (int d = 0; d < (feature == a->dims.name[1] ? 2 : 1); d++)
        if (!need_dim(l, k, a->ast[i], a->dims.name[d], a->dim_ast[d]->loc, &name))
            return false;
    Type others = without_dim(k->type, feature);
    Names more = dims_lacking(&others, &q->type);
    if (more.count)
        complain(l, (Where){ .at = a->ast[i]->loc, .also = { a->ast[0]->loc } },
                 "cannot attend with %s to %s: the queries have no dim '%s'", type_words(l, &q->type),
                 type_words(l, &k->type), more.name[0]);
    return !more.count;
}

/* The feature dim of v: that of q, or, if v lacks it, the only one of its dims that q lacks. */
static Name value_feature(const Arguments *a)
{
    const Names own = dims_lacking(&a->x[2]->type, &a->x[0]->type);
    return own.count == 1 && find_dim(&a->x[2]->type, a->dims.name[1]) < 0 ? own.name[0] : a->dims.name[1];
}

/* x with a longer feature dim, of zeros behind its own: they add nothing to a product. */
static Value *stretched(Lower *l, Value *x, Name from, Dim to)
{
    return from == to.name ? x : EMIT(l, OP_pad, ((Attrs){ .dim = from, .dims = { 1, { to } } }), x);
}

/* The keys' sequence dim gets a separate name, so that dims can be matched by name. */
static Value *keys(Lower *l, Value *k, Name seq, Name key)
{
    return EMIT(l, OP_rename, ((Attrs){ .dim = seq, .to = key }), k);
}

/* Keys and values must have the same dims, and those of their segments: each is broadcast over dims that only another
 * has, such as a head of the queries. */
static Value *with_dims_of(Lower *l, Value *x, const Value *other)
{
    Attrs spread = { 0 };
    for (int i = 0; i < other->type.rank; i++)
        if (find_dim(&x->type, other->type.dim[i].name) < 0)
            spread.dims.dim[spread.dims.count++] = other->type.dim[i];
    return spread.dims.count ? EMIT(l, OP_broadcast, spread, x) : x;
}

/* Kernels scale scores after masking with -inf and take their maximum, so the scale must be above 0.  Otherwise the
 * queries are scaled. */
static Value *scaled_queries(Lower *l, Value *q, double *scale)
{
    enum { SMALLEST_EXPONENT = -64 };
    if (*scale >= ldexp(1, SMALLEST_EXPONENT))
        return q;
    q = EMIT(l, OP_mul, NO_ATTRS, q, emit_number(l, *scale, F32));
    *scale = 1;
    return q;
}

/* The segments of the queries; NULL if absent or after reporting. */
static Value *segment_argument(Lower *l, const Arguments *a, const Attrs *attrs)
{
    Value *segment = integers_argument(l, a, 3, a->x[0], attrs->feature);
    if (!segment || find_dim(&segment->type, attrs->seq) >= 0)
        return segment;
    complain(l, (Where){ .at = a->keyword[3]->child->loc }, "'segment' is %s, without the sequence dim '%s'",
             type_words(l, &segment->type), attrs->seq);
    return NULL;
}

/* Kernels have one feature dim for all three: the longer one. */
static Value *attend(Lower *l, const Arguments *a, Attrs attrs, Dim widest, Name of_values, Value *segment)
{
    attrs.key = intern_format(l->m, "%s.key", attrs.seq);
    declare_like(l->m, attrs.key, attrs.seq);
    Value *queries = stretched(l, scaled_queries(l, a->x[0], &attrs.scale), attrs.feature, widest);
    Value *k = stretched(l, keys(l, a->x[1], attrs.seq, attrs.key), attrs.feature, widest);
    Value *v = stretched(l, keys(l, a->x[2], attrs.seq, attrs.key), of_values, widest);
    attrs.feature = widest.name;
    if (!k || !v || !queries)
        return NULL;
    Value *segments[] = { segment, segment ? keys(l, segment, attrs.seq, attrs.key) : NULL };
    if (l->options->largest_head && widest.size > l->options->largest_head) /* no kernel supports such heads */
        return attention(l, &attrs, queries, k, v, segments);
    Value *both[] = { with_dims_of(l, k, v), with_dims_of(l, v, k) };
    for (int i = 0; segment && i < 2; i++)
        both[i] = with_dims_of(l, both[i], segments[1]);
    for (int i = 0; segment && i < 2; i++)
        segments[i] = with_groups(l, segments[i], &queries->type, &both[0]->type, &attrs);
    Value *const operands[] = { queries, both[0], both[1], segments[0], segments[1] };
    return emit(l, OP_attend, attrs, segment ? 5 : 3, operands);
}

CALL(attend)
{
    Attrs attrs = { .seq = a->dims.name[0], .feature = a->dims.name[1] };
    const Type *q = &a->x[0]->type, *of = &a->x[2]->type;
    const Name own = value_feature(a);
    if (!key_fits(l, a, 1, attrs.feature) || !key_fits(l, a, 2, own))
        return wrong;
    int64_t length = q->dim[find_dim(q, attrs.seq)].size;
    const Dim features = q->dim[find_dim(q, attrs.feature)], values = of->dim[find_dim(of, own)];
    double head = (double)features.size;
    if (!flag_argument(l, a->keyword[0], &attrs.causal) ||
        (a->keyword[1] && !integer_of(l, a->keyword[1]->child, "'window'", 0, INT32_MAX, &attrs.window)) ||
        !number_argument(l, a->keyword[2], 1 / sqrt(head), &attrs.scale))
        return wrong;
    if (attrs.window >= length)
        attrs.window = 0; /* the window includes all keys */
    Value *segment = segment_argument(l, a, &attrs);
    if (a->keyword[3] && !segment)
        return wrong;
    const Dim widest = values.size > features.size ? values : features;
    Value *y = attend(l, a, attrs, widest, own, segment);
    const bool is_part = y && widest.name != own;
    return tensor_operand(is_part ? EMIT(l, OP_part, ((Attrs){ .dim = widest.name, .dims = { 1, { values } } }), y)
                                  : y);
}

static bool style_argument(Lower *l, const Ast *keyword, bool *interleaved)
{
    const Ast *word = keyword ? keyword->child : NULL;
    *interleaved = word && word->kind == A_NAME && strcmp(word->name, "interleaved") == 0;
    if (!word || *interleaved || (word->kind == A_NAME && strcmp(word->name, "half") == 0))
        return true;
    complain(l, (Where){ .at = word->loc }, "'style' must be half or interleaved");
    return false;
}

CALL(rope)
{
    Attrs attrs = { .seq = a->dims.name[0], .feature = a->dims.name[1] };
    const Dim *head = &a->x[0]->type.dim[find_dim(&a->x[0]->type, attrs.feature)];
    if (!number_argument(l, a->keyword[0], 10000, &attrs.base) || !style_argument(l, a->keyword[1], &attrs.interleaved))
        return wrong;
    if (head->size % 2 || attrs.base <= 0) {
        complain(l, (Where){ .at = head->size % 2 ? a->dim_ast[1]->loc : a->keyword[0]->child->loc },
                 head->size % 2 ? "rope rotates pairs, but '%s' has %lld elements" : "'base' must be above 0",
                 head->name, (long long)head->size);
        return wrong;
    }
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

/* --- Dropout ------------------------------------------------------------------------------- */

CALL(dropout)
{
    if (!(a->number.value >= 0 && a->number.value < 1)) {
        complain(l, (Where){ .at = a->number_ast->loc }, "the rate of dropout must be at least 0 and below 1, not %s",
                 constant_text(l->arena, a->number));
        return wrong;
    }
    if (a->number.value == 0 || l->variant == AS_EVAL || l->variant == AS_PREDICT)
        return tensor_operand(a->x[0]);
    Attrs attrs = { .rate = a->number.value, .instance = l->dropout_count++ };
    Value *key = dropout_key(l, l->frame), *origin = dropout_origin(l);
    return tensor_operand(EMIT(l, OP_dropout, attrs, a->x[0], key, origin));
}

/* --- Renaming ------------------------------------------------------------------------------ */

CALL(rename)
{
    const Ast *from = a->renaming->child;
    Name name;
    Dim to;
    if (!need_dim(l, a->x[0], a->ast[0], from->name, from->loc, &name) ||
        !find_dim_named(l, a->renaming->name, a->renaming->name_loc, &to))
        return wrong;
    const Type *x = &a->x[0]->type;
    const Dim *dim = &x->dim[find_dim(x, name)];
    Where at = { .at = a->renaming->name_loc, .also = { from->loc } };
    if (varies(l, name) || varies(l, to.name))
        complain(l, at, "the size of '%s' %s the micro-batch: it cannot be renamed", varies(l, name) ? name : to.name,
                 name == l->m->batch || to.name == l->m->batch ? "is" : "depends on");
    else if (find_dim(x, to.name) >= 0)
        complain(l, at, "%s already has a dim '%s'", type_words(l, x), to.name);
    else if (dim->size != to.size)
        complain(l, at, "'%s' has %lld elements and '%s' has %lld", name, (long long)dim->size, to.name,
                 (long long)to.size);
    else if (dim->padded != to.padded) /* the pitch of rows changes: a copy, not a view */
        return tensor_operand(EMIT(l, OP_gather, (Attrs){ .dim = name }, a->x[0], emit_iota(l, to)));
    else
        return tensor_operand(EMIT(l, OP_rename, ((Attrs){ .dim = name, .to = to.name }), a->x[0]));
    return wrong;
}
