/* attend.c -- the built-in function attend: checks of its arguments, and what kernels need of its operands. */
#include "functions.h"
#include "target.h"

#include <math.h>

enum { CAUSAL, WINDOW, SCALE, SEGMENT, SOFTCAP, BIAS, SINKS, MASK }; /* keywords, as in builtins.def */

/* What attend does, beside its attributes. */
typedef struct {
    Dim key;                       /* the sequence of the keys, as the file names it */
    bool is_own;                   /* it is a dim of k and v; else these have that of the queries */
    Dim widest;                    /* the longer feature dim: kernels have one for all three */
    Name feature;                  /* of the values */
    Value *segment, *bias, *sinks; /* NULL: none; a bias is -inf where a mask is false */
} Sides;

/* --- Queries, keys and values ---------------------------------------------------------------- */

/* k or v: it has the sequence and the feature dim, and of the others only those of q. */
static bool key_fits(Lower *l, const Arguments *a, int i, const Sides *sides, Name feature)
{
    const Value *q = a->x[0], *k = a->x[i];
    const Name seq = a->dims.name[0];
    Name name;
    const Ast *row = sides->is_own ? a->renaming : a->dim_ast[0];
    if (!need_dim(l, k, a->ast[i], sides->is_own ? sides->key.name : seq, sides->is_own ? row->name_loc : row->loc,
                  &name) ||
        (feature == a->dims.name[1] && !need_dim(l, k, a->ast[i], feature, a->dim_ast[1]->loc, &name)))
        return false;
    Type others = without_dim(without_dim(k->type, feature), sides->key.name);
    const Names more = dims_lacking(&others, &q->type);
    const bool has_both = sides->is_own && find_dim(&k->type, seq) >= 0;
    if (more.count)
        complain(l,
                 (Where){ .at = a->ast[i]->loc,
                          .also = { a->ast[0]->loc },
                          .help = arena_text(l->arena, "broadcast(..., %s) gives the queries this dim", more.name[0]) },
                 "cannot attend with %s to %s: the queries have no dim '%s'", type_words(l, &q->type),
                 type_words(l, &k->type), more.name[0]);
    else if (has_both)
        complain(l, (Where){ .at = a->ast[i]->loc, .also = { row->loc } },
                 "%s has both '%s', of the queries, and '%s', of the keys", type_words(l, &k->type), seq,
                 sides->key.name);
    return !more.count && !has_both;
}

/* `s -> t`: keys are along t.  They may have s in its place, if that has the same size: then t names it where a tensor
 * has both.  A block of two sequences may be called with one. */
static bool find_keys(Lower *l, const Arguments *a, Sides *sides)
{
    const Type *q = &a->x[0]->type;
    const Ast *arrow = a->renaming;
    const Dim seq = sides->key = q->dim[find_dim(q, a->dims.name[0])];
    Name name;
    if (!arrow)
        return true;
    if (!find_dim_named(l, arrow->name, arrow->name_loc, &sides->key))
        return false;
    const bool has_both = a->keyword[BIAS] || a->keyword[MASK]; /* queries and keys in one tensor */
    if (sides->key.name == seq.name && !has_both)
        return true;
    if (has_no_positions(l, sides->key.name, arrow->name_loc))
        return false;
    sides->is_own = find_dim(&a->x[1]->type, sides->key.name) >= 0 || find_dim(&a->x[2]->type, sides->key.name) >= 0;
    if (find_dim(q, sides->key.name) >= 0)
        return complain(l, (Where){ .at = arrow->name_loc, .also = { a->ast[0]->loc }, .help = "name another dim" },
                        "the queries have a dim '%s': it cannot be that of the keys", sides->key.name);
    return sides->is_own || sides->key.size == seq.size ||
           need_dim(l, a->x[1], a->ast[1], arrow->name, arrow->name_loc, &name);
}

/* The feature dim of v: that of q, or, if v lacks it, the only one of its dims that q lacks. */
static Name value_feature(const Arguments *a, const Sides *sides)
{
    const Type rest = sides->is_own ? without_dim(a->x[2]->type, sides->key.name) : a->x[2]->type;
    const Names own = dims_lacking(&rest, &a->x[0]->type);
    return own.count == 1 && find_dim(&rest, a->dims.name[1]) < 0 ? own.name[0] : a->dims.name[1];
}

/* --- Arguments of its own -------------------------------------------------------------------- */

/* The segments of the queries; NULL if absent or after reporting. */
static Value *segment_argument(Lower *l, const Arguments *a, const Sides *sides)
{
    const Name seq = a->dims.name[0];
    Value *segment = integers_argument(l, a, SEGMENT, a->x[0], a->dims.name[1]);
    if (!segment)
        return NULL;
    const Where at = { .at = a->keyword[SEGMENT]->child->loc };
    if (find_dim(&segment->type, seq) < 0)
        complain(l, at, "'segment' is %s, without the sequence dim '%s'", type_words(l, &segment->type), seq);
    else if (sides->is_own)
        complain(l, (Where){ .at = at.at, .help = "mask = ..., over both" },
                 "'segment' is %s, which says nothing of the keys along '%s'", type_words(l, &segment->type),
                 sides->key.name);
    else
        return segment;
    return NULL;
}

static bool softcap_argument(Lower *l, const Ast *keyword, Attrs *attrs)
{
    if (!number_argument(l, keyword, 0, &attrs->softcap))
        return false;
    if (attrs->softcap < 0)
        complain(l, (Where){ .at = keyword->child->loc }, "'softcap' cannot be negative; 0 is none");
    return attrs->softcap >= 0;
}

/* A tensor over dims of the scores, a bias or a mask, or of heads; NULL after reporting. */
static Value *scores_argument(Lower *l, const Arguments *a, int keyword, const Sides *sides)
{
    const Ast *ast = a->keyword[keyword]->child;
    if (keyword != SINKS && !a->renaming)
        return complain(l, (Where){ .at = ast->loc, .help = "attend(q, k, v, s -> t, ...), with t for the keys" },
                        "'%s' needs a name for the keys' dim", a->keyword[keyword]->name),
               NULL;
    Operand operand = lower_expr(l, ast);
    set_place(l, a->call->name_loc);
    Value *x = operand.kind == WRONG ? NULL : value_of(l, operand, F32);
    if (!x)
        return NULL;
    const DType wanted = keyword == MASK ? BOOL : F32;
    Type allowed = without_dim(a->x[0]->type, a->dims.name[1]);
    if (keyword == SINKS)
        allowed = without_dim(allowed, a->dims.name[0]);
    else
        allowed.dim[allowed.rank++] = sides->key;
    allowed.dtype = wanted;
    const Names more = dims_lacking(&x->type, &allowed);
    if (is_float(x->type.dtype) != is_float(wanted) || (wanted == BOOL && x->type.dtype != BOOL) || more.count)
        complain(l, (Where){ .at = ast->loc }, "'%s' must be %s over dims of %s, not %s", a->keyword[keyword]->name,
                 wanted == BOOL ? "bool" : "floating-point numbers", dims_text(l, &allowed), type_words(l, &x->type));
    else if (keyword == BIAS && find_dim(&x->type, sides->key.name) < 0)
        complain(l, (Where){ .at = ast->loc }, "'bias' is %s, without the keys' dim '%s': it would change nothing",
                 type_words(l, &x->type), sides->key.name);
    else
        return x;
    return NULL;
}

static bool is_around(const Body *frame, const Body *inner)
{
    while (inner && inner != frame)
        inner = inner->outer;
    return inner;
}

/* The bias (NULL: 0), minus infinity where the mask is false.  It is computed where both are, not again in each copy of
 * a repeat, all of which would be kept for the backward. */
static Value *masked(Lower *l, Value *mask, Value *bias, Dim key)
{
    Body *here = l->frame, *frame = here, *other = here;
    mask = outside_bodies(&frame, mask, false);
    if (bias)
        bias = outside_bodies(&other, bias, false);
    else
        other = frame;
    if (is_around(frame, other)) {
        mask = import_value(l, other, mask, frame);
        frame = other;
    } else {
        bias = import_value(l, frame, bias, other);
    }
    const Builder b = l->b;
    l->frame = frame;
    l->b.func = frame->func;
    if (find_dim(&mask->type, key.name) < 0)
        mask = EMIT(l, OP_broadcast, ((Attrs){ .dims = { 1, { key } } }), mask);
    Value *seen = bias ? bias : emit_number(l, 0, F32);
    Value *logits = EMIT(l, OP_where, NO_ATTRS, mask, seen, emit_number(l, -INFINITY, F32));
    l->frame = here;
    l->b = b;
    return import_value(l, here, logits, frame);
}

/* The bias, minus infinity where the mask is false; false after reporting. */
static bool logit_arguments(Lower *l, const Arguments *a, Sides *sides)
{
    Value *mask = NULL;
    if ((a->keyword[BIAS] && !(sides->bias = scores_argument(l, a, BIAS, sides))) ||
        (a->keyword[SINKS] && !(sides->sinks = scores_argument(l, a, SINKS, sides))) ||
        (a->keyword[MASK] && !(mask = scores_argument(l, a, MASK, sides))))
        return false;
    if (mask)
        sides->bias = masked(l, mask, sides->bias, sides->key);
    return !mask || sides->bias != NULL;
}

/* --- Operands as kernels take them ----------------------------------------------------------- */

/* x with a longer feature dim, of zeros behind its own: they add nothing to a product. */
static Value *stretched(Lower *l, Value *x, Name from, Dim to)
{
    return from == to.name ? x : EMIT(l, OP_pad, ((Attrs){ .dim = from, .dims = { 1, { to } } }), x);
}

/* Keys that have the queries' dim get one with a separate name, so that dims can be matched by name. */
static Value *keys(Lower *l, Value *k, const Attrs *attrs)
{
    return find_dim(&k->type, attrs->key) >= 0
               ? k
               : EMIT(l, OP_rename, ((Attrs){ .dim = attrs->seq, .to = attrs->key }), k);
}

/* A bias or sinks in f32, with the name and the padding that the keys' dim has here. */
static Value *named_logits(Lower *l, Value *x, const Sides *sides, const Value *k, Name key)
{
    x = x ? emit_f32(l, x) : NULL;
    if (!x || sides->is_own || find_dim(&x->type, sides->key.name) < 0)
        return x;
    const Dim to = k->type.dim[find_dim(&k->type, key)];
    if (to.padded != sides->key.padded)
        return EMIT(l, OP_gather, (Attrs){ .dim = sides->key.name }, x, emit_iota(l, to));
    return EMIT(l, OP_rename, ((Attrs){ .dim = sides->key.name, .to = key }), x);
}

/* The same with the dims that kernels require: either all or none of those that only the queries have, and two groups
 * of the others. */
static Value *spread_logits(Lower *l, Value *x, const Value *q, const Value *k, const Attrs *attrs)
{
    Attrs spread = { 0 };
    int alone = 0;
    for (int i = 0; x && i < q->type.rank; i++) {
        const Dim *dim = &q->type.dim[i];
        if (dim->name == attrs->seq || dim->name == attrs->feature || find_dim(&k->type, dim->name) >= 0)
            continue;
        alone++;
        if (find_dim(&x->type, dim->name) < 0)
            spread.dims.dim[spread.dims.count++] = *dim;
    }
    if (spread.dims.count && spread.dims.count < alone)
        x = EMIT(l, OP_broadcast, spread, x);
    return with_groups(l, x, &q->type, &k->type, attrs);
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

static Value *attend(Lower *l, const Arguments *a, Attrs attrs, const Sides *sides)
{
    attrs.key = sides->key.name;
    if (!sides->is_own) {
        attrs.key = intern_format(l->m, "%s.key", attrs.seq);
        add_made_dim(l->m, attrs.key, MADE_LIKE, attrs.seq);
    }
    Value *queries = stretched(l, scaled_queries(l, a->x[0], &attrs.scale), attrs.feature, sides->widest);
    Value *k = stretched(l, keys(l, a->x[1], &attrs), attrs.feature, sides->widest);
    Value *v = stretched(l, keys(l, a->x[2], &attrs), sides->feature, sides->widest);
    attrs.feature = sides->widest.name;
    if (!k || !v || !queries)
        return NULL;
    Value *bias = named_logits(l, sides->bias, sides, k, attrs.key);
    Value *sinks = named_logits(l, sides->sinks, sides, k, attrs.key);
    Value *segment = sides->segment, *segments[] = { segment, segment ? keys(l, segment, &attrs) : NULL };
    if (l->m->target->largest_head &&
        sides->widest.size > l->m->target->largest_head) /* no kernel supports such heads */
        return attention(l, &attrs, queries, k, v, segments, bias, sinks);
    Value *both[] = { with_dims_of(l, k, v), with_dims_of(l, v, k) };
    for (int i = 0; segment && i < 2; i++)
        both[i] = with_dims_of(l, both[i], segments[1]);
    for (int i = 0; segment && i < 2; i++)
        segments[i] = with_groups(l, segments[i], &queries->type, &both[0]->type, &attrs);
    Value *operands[7] = { queries, both[0], both[1] };
    int count = 3;
    if (bias)
        operands[count++] = spread_logits(l, bias, queries, both[0], &attrs);
    if (sinks)
        operands[count++] = spread_logits(l, sinks, queries, both[0], &attrs);
    for (int i = 0; segment && i < 2; i++)
        operands[count++] = segments[i];
    return emit(l, OP_attend, attrs, count, operands);
}

CALL(attend)
{
    Attrs attrs = { .seq = a->dims.name[0], .feature = a->dims.name[1] };
    Sides sides = { 0 };
    const Type *q = &a->x[0]->type, *v = &a->x[2]->type;
    if (!find_keys(l, a, &sides))
        return wrong;
    sides.feature = value_feature(a, &sides);
    if (!key_fits(l, a, 1, &sides, attrs.feature) || !key_fits(l, a, 2, &sides, sides.feature))
        return wrong;
    const int64_t length = q->dim[find_dim(q, attrs.seq)].size;
    const Dim features = q->dim[find_dim(q, attrs.feature)], values = v->dim[find_dim(v, sides.feature)];
    if (!flag_argument(l, a->keyword[CAUSAL], &attrs.causal) ||
        (a->keyword[WINDOW] && !integer_of(l, a->keyword[WINDOW]->child, "'window'", 0, INT32_MAX, &attrs.window)) ||
        !number_argument(l, a->keyword[SCALE], 1 / sqrt((double)features.size), &attrs.scale) ||
        !softcap_argument(l, a->keyword[SOFTCAP], &attrs))
        return wrong;
    if (attrs.window >= length && attrs.window >= sides.key.size && attrs.seq != l->m->batch)
        attrs.window = 0; /* the window includes all keys, which of a micro-batch only the layout decides */
    sides.segment = segment_argument(l, a, &sides);
    if (a->keyword[SEGMENT] && !sides.segment)
        return wrong;
    if (!logit_arguments(l, a, &sides))
        return wrong;
    sides.widest = values.size > features.size ? values : features;
    Value *y = attend(l, a, attrs, &sides);
    const bool is_part = y && sides.widest.name != sides.feature;
    const Attrs part = { .dim = sides.widest.name, .dims = { 1, { values } } };
    return tensor_operand(is_part ? EMIT(l, OP_part, part, y) : y);
}
