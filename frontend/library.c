/* library.c -- the built-in functions attend, rope, dropout and rename. */
#include "builtins.h"

#include <math.h>
#include <string.h>

static const Operand wrong = { .kind = WRONG };

/* --- Attention ----------------------------------------------------------------------------- */

/* k or v: it has the sequence and the feature dim, and of the others only those of q. */
static bool key_fits(Lower *l, const Arguments *a, int i)
{
    const Value *q = a->x[0], *k = a->x[i];
    Name name;
    for (int d = 0; d < 2; d++)
        if (!need_dim(l, k, a->ast[i], a->dims.name[d], a->dim_ast[d]->loc, &name))
            return false;
    Names more = dims_lacking(&k->type, &q->type);
    if (more.count)
        complain(l, (Where){ .at = a->ast[i]->loc, .also = { a->ast[0]->loc } },
                 "cannot attend with %s to %s: the queries have no dim '%s'", type_words(l, &q->type),
                 type_words(l, &k->type), more.name[0]);
    return !more.count;
}

/* The keys' sequence dim gets a separate name, so that dims can be matched by name. */
static Value *keys(Lower *l, Value *k, Name seq, Name key)
{
    return EMIT(l, OP_rename, ((Attrs){ .dim = seq, .to = key }), k);
}

/* Keys and values must have the same dims: each is broadcast over dims that only the other has, such as a head of the
 * queries. */
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

CALL(attend)
{
    Attrs attrs = { .seq = a->dims.name[0], .feature = a->dims.name[1] };
    const Type *q = &a->x[0]->type;
    if (!key_fits(l, a, 1) || !key_fits(l, a, 2))
        return wrong;
    int64_t length = q->dim[find_dim(q, attrs.seq)].size;
    double head = (double)q->dim[find_dim(q, attrs.feature)].size;
    if (!flag_argument(l, a->keyword[0], &attrs.causal) ||
        (a->keyword[1] && !integer_of(l, a->keyword[1]->child, "'window'", 0, INT32_MAX, &attrs.window)) ||
        !number_argument(l, a->keyword[2], 1 / sqrt(head), &attrs.scale))
        return wrong;
    if (attrs.window >= length)
        attrs.window = 0; /* the window includes all keys */
    attrs.key = intern_format(l->m, "%s.key", attrs.seq);
    declare_like(l->m, attrs.key, attrs.seq);
    Value *queries = scaled_queries(l, a->x[0], &attrs.scale);
    Value *k = keys(l, a->x[1], attrs.seq, attrs.key), *v = keys(l, a->x[2], attrs.seq, attrs.key);
    if (!k || !v || !queries)
        return wrong;
    if (l->options->largest_head && head > (double)l->options->largest_head) /* no kernel supports such heads */
        return tensor_operand(attention(l, &attrs, queries, k, v));
    Value *const operands[] = { queries, with_dims_of(l, k, v), with_dims_of(l, v, k) };
    return tensor_operand(emit(l, OP_attend, attrs, 3, operands));
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
    return tensor_operand(EMIT(l, OP_rope, attrs, a->x[0]));
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
