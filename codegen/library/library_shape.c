/* library_shape.c -- the shape arguments of the runtime's kernels for gathers, rope and attention. */
#include "library.h"

static bool is_contiguous(const Operands *o, Name dim, int first, int end)
{
    for (int i = first; i < end; i++)
        if (find_dim(&o->value[i]->type, dim) >= 0 && size_along(o, o->value[i], dim) > 1 &&
            stride_of(o->value[i], dim) != 1)
            return refuse_layout(o, "the stride of '%s' in %%%s is not 1", dim, o->value[i]->name);
    return true;
}

/* Have all operands with this dim one floating-point type? */
static bool same_dtype(const Operands *o, Name dim)
{
    for (int i = 0; i < o->count; i++)
        if (find_dim(&o->value[i]->type, dim) >= 0 &&
            (o->value[i]->type.dtype != o->value[0]->type.dtype || !is_float(o->value[i]->type.dtype)))
            return refuse_layout(o, "%%%s and %%%s are not floating-point numbers of one type", o->value[0]->name,
                                 o->value[i]->name);
    return true;
}

/* --- gather, scatter_add --------------------------------------------------------------------------------------- */

/* The table is [pre, shared, rows, post], the picked rows [pre, shared, count, post], the index [shared, count]. */

typedef struct {
    DimGroup pre, shared, count, post;
} GatherGroups;

static bool find_gather_groups(const Operands *o, int table, Name rows, GatherGroups *g)
{
    const Type *index = &o->value[1]->type, *t = &o->value[table]->type;
    const int at = find_dim(t, rows);
    Names pre = { 0 }, post = { 0 }, shared = { 0 }, counted = { 0 };
    for (int i = 0; i < t->rank; i++)
        if (i != at)
            add_name(find_dim(index, t->dim[i].name) >= 0 ? &shared : i < at ? &pre : &post, t->dim[i].name);
    for (int i = 0; i < index->rank; i++)
        if (is_dim_of_index_alone(t, &index->dim[i], rows))
            add_name(&counted, index->dim[i].name);
    Operands places = *o; /* a dim of the index may have the name of the row dim, which it replaces */
    places.value[table] = o->value[1];
    return find_groups(o, &pre, "outer", 1, &g->pre) && find_groups(o, &shared, "shared", 1, &g->shared) &&
           find_groups(o, &post, "inner", 1, &g->post) && find_groups(&places, &counted, "index", 1, &g->count);
}

/* In the loops over a tensor; `row` is the stride of its rows. */
static void put_gathered(const Operands *o, Text *fields, const char *name, int operand, int64_t rows, int64_t row,
                         const GatherGroups *g)
{
    put_strides(o, fields, operand, name, 3,
                (Access){ 4,
                          { g->pre.size, g->shared.size, rows, g->post.size },
                          { g->pre.stride[operand], g->shared.stride[operand], row, 1 } });
}

static char *gather(const Operands *o, int table, int picked, Name rows, const char *function, const char *operands)
{
    const Value *t = o->value[table], *p = o->value[picked];
    const int sum = operand_at(o->op, OPERAND_sum);
    GatherGroups g;
    if (!find_gather_groups(o, table, rows, &g))
        return NULL;
    if (g.post.size > 1 &&
        (g.post.stride[table] != 1 || g.post.stride[picked] != 1 || (sum >= 0 && g.post.stride[sum] != 1)))
        return refuse_layout(o, "rows of the table are not contiguous");
    if (t->type.dtype == BOOL || (t->type.dtype == I32) != (p->type.dtype == I32))
        return refuse_layout(o, "%s to %s", dtype_name[t->type.dtype], dtype_name[p->type.dtype]);
    const Dim *dim = &t->type.dim[find_dim(&t->type, rows)];
    const int64_t size = size_along(o, t, rows), row = stride_of(t, rows);
    Text fields;
    open_text(&fields);
    put_number(&fields, "pre", g.pre.size);
    put_number(&fields, "shared", g.shared.size);
    put_number(&fields, "rows", size);
    put_number(&fields, "count", g.count.size);
    put_number(&fields, "post", g.post.size);
    put_gathered(o, &fields, "table", table, size, row, &g);
    put_gathered(o, &fields, "picked", picked, g.count.size, g.count.stride[picked], &g);
    put_strides(o, &fields, 1, "index", 3,
                (Access){ 3,
                          { g.pre.size, g.shared.size, g.count.size },
                          { g.pre.stride[1], g.shared.stride[1], g.count.stride[1] } });
    if (sum >= 0)
        put_gathered(o, &fields, "sum", sum, size, stride_of(o->value[sum], rows), &g);
    put_text(&fields, "table_type", element_constant(t->type.dtype));
    put_text(&fields, "picked_type", element_constant(p->type.dtype));
    put_part(o, &fields, dim, "part");
    if (o->op->kind == OP_gather)
        put_bound(o, &fields, dim);
    return call_with_shape(o, "RtGather", function, arena_text(&o->m->arena, "%s%s", operands, o->more), &fields);
}

char *call_gather(const Operands *o) { return gather(o, 0, 2, o->op->attrs.dim, "rt_gather", "table, index, picked"); }

char *call_scatter_add(const Operands *o)
{
    const char *operands = sum_before(o->op) ? "picked, index, sum, table" : "picked, index, RT_NO_SUM, table";
    return gather(o, o->count - 1, 0, o->op->attrs.dims.dim[0].name, "rt_scatter_add", operands);
}

/* --- rope: [outer, seq, middle, feature] ---------------------------------------------------------------------- */

char *call_rope(const Operands *o)
{
    const Attrs *a = &o->op->attrs;
    const Type *x = &o->value[0]->type;
    const Names around = rope_others(o);
    DimGroup groups[2];
    if (!find_groups(o, &around, "other", 2, groups) || !is_contiguous(o, a->feature, 0, o->count) ||
        !same_dtype(o, a->feature))
        return NULL;
    Text fields;
    open_text(&fields);
    put_number(&fields, "outer", groups[0].size);
    put_number(&fields, "seq", size_along(o, o->value[0], a->seq));
    put_number(&fields, "middle", groups[1].size);
    put_number(&fields, "feature", size_along(o, o->value[0], a->feature));
    for (int i = 0; i < o->count; i++)
        put_strides(o, &fields, i, o->name[i], 3,
                    (Access){ 4,
                              { groups[0].size, size_along(o, o->value[i], a->seq), groups[1].size,
                                size_along(o, o->value[i], a->feature) },
                              { groups[0].stride[i], stride_of(o->value[i], a->seq), groups[1].stride[i], 1 } });
    put_text(&fields, "type", element_constant(x->dtype));
    put_flag(&fields, "interleaved", a->interleaved);
    put_flag(&fields, "inverse", a->inverse);
    put_text(&fields, "base", arena_text(&o->m->arena, "%.17g", a->base));
    put_text(&fields, "stretch", arena_text(&o->m->arena, "%.17g", a->stretch ? a->stretch : 1));
    put_part(o, &fields, &x->dim[find_dim(x, a->seq)], "part");
    const char *position = operand_named(o, OPERAND_position) ? "position" : "RT_NO_POSITION";
    return call_with_shape(o, "RtRope", "rt_rope", arena_text(&o->m->arena, "x, %s, y%s", position, o->more), &fields);
}

/* --- cumsum, cummax: [outer, middle, count] --------------------------------------------------------------------- */

char *call_cumulative(const Operands *o)
{
    const Attrs *a = &o->op->attrs;
    const Type *x = &o->value[0]->type;
    Names around = { 0 };
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i].name != a->dim)
            add_name(&around, x->dim[i].name);
    DimGroup groups[2];
    if (!find_groups(o, &around, "other", 2, groups))
        return NULL;
    Text fields;
    open_text(&fields);
    put_number(&fields, "outer", groups[0].size);
    put_number(&fields, "middle", groups[1].size);
    put_number(&fields, "count", size_along(o, o->value[0], a->dim));
    for (int i = 0; i < 2; i++)
        put_strides(o, &fields, i, o->name[i], 3,
                    (Access){ 3,
                              { groups[0].size, groups[1].size, size_along(o, o->value[i], a->dim) },
                              { groups[0].stride[i], groups[1].stride[i], stride_of(o->value[i], a->dim) } });
    put_text(&fields, "type", element_constant(x->dtype));
    put_flag(&fields, "is_max", o->op->kind == OP_cummax);
    put_flag(&fields, "exclusive", a->exclusive);
    put_flag(&fields, "reverse", a->reverse);
    return call_with_shape(o, "RtCumulative", "rt_cumulative", "x, y", &fields);
}

/* --- attend: q [B, S, H, G, D]; k and v [B, T, H, D] ---------------------------------------------------------- */

static void put_attended(const Operands *o, int i, const DimGroup both[2], const DimGroup *group, Text *fields)
{
    const Attrs *a = &o->op->attrs;
    const Value *value = o->value[i];
    const bool is_plane = o->is[i] == OPERAND_bias || o->is[i] == OPERAND_dbias;
    const bool is_key = !is_plane && find_dim(&value->type, a->key) >= 0;
    const Name row = is_key ? a->key : a->seq, column = is_plane ? a->key : a->feature;
    put_strides(o, fields, i, o->name[i], is_plane ? 5 : 4,
                (Access){ 5,
                          { both[0].size, size_along(o, value, row), both[1].size, is_key ? 1 : group->size,
                            size_along(o, value, column) },
                          { both[0].stride[i], stride_of(value, row), both[1].stride[i], group->stride[i],
                            is_plane ? stride_of(value, column) : 1 } });
}

/* The strides of all operands, in the order of the struct. */
static void put_all_strides(const Operands *o, const DimGroup both[2], const DimGroup *group, Text *fields)
{
    static const OperandName order[] = {
        OPERAND_q,          OPERAND_k,  OPERAND_v,  OPERAND_y,    OPERAND_share, OPERAND_lse,   OPERAND_dy,
        OPERAND_dq,         OPERAND_dk, OPERAND_dv, OPERAND_bias, OPERAND_dbias, OPERAND_sinks, OPERAND_query_segment,
        OPERAND_key_segment
    };
    for (size_t n = 0; n < sizeof order / sizeof *order; n++) {
        const int i = operand_at(o->op, order[n]);
        if (i >= 0)
            put_attended(o, i, both, group, fields);
    }
}

bool find_heads(const Operands *o, DimGroup both[2], DimGroup *group)
{
    const Attrs *a = &o->op->attrs;
    const Type *q = &o->value[0]->type, *k = &o->value[1]->type, *v = &o->value[2]->type;
    Names shared = { 0 }, alone = { 0 };
    for (int i = 0; i < q->rank; i++) {
        Name dim = q->dim[i].name;
        if (dim == a->seq || dim == a->feature)
            continue;
        if ((find_dim(k, dim) >= 0) != (find_dim(v, dim) >= 0))
            return refuse_layout(o, "only one of k and v has '%s'", dim);
        add_name(find_dim(k, dim) >= 0 ? &shared : &alone, dim);
    }
    return find_groups(o, &shared, "common", 2, both) && find_groups(o, &alone, "query's own", 1, group) &&
           is_contiguous(o, a->feature, 0, o->count) && same_dtype(o, a->feature);
}

static char *attend(const Operands *o, const char *function, const char *read, const char *more, const char *written)
{
    const Attrs *a = &o->op->attrs;
    const Type *q = &o->value[0]->type, *k = &o->value[1]->type;
    DimGroup both[2], group;
    if (!find_heads(o, both, &group))
        return NULL;
    Text fields;
    open_text(&fields);
    put_number(&fields, "batch", both[0].size);
    put_number(&fields, "queries", size_along(o, o->value[0], a->seq));
    put_number(&fields, "keys", size_along(o, o->value[1], a->key));
    put_number(&fields, "heads", both[1].size);
    put_number(&fields, "group", group.size);
    put_number(&fields, "feature", size_along(o, o->value[0], a->feature));
    put_all_strides(o, both, &group, &fields);
    put_text(&fields, "type", element_constant(q->dtype));
    put_flag(&fields, "causal", a->causal);
    put_number(&fields, "window", a->window);
    put_part(o, &fields, &q->dim[find_dim(q, a->seq)], "query_part");
    put_part(o, &fields, &k->dim[find_dim(k, a->key)], "key_part");
    put_text(&fields, "scale", c_number(o->m, a->scale, false));
    if (a->softcap != 0)
        put_text(&fields, "softcap", c_number(o->m, a->softcap, false));
    if (operand_named(o, OPERAND_bias))
        put_text(&fields, "has_bias", "true");
    const char *segments =
        operand_named(o, OPERAND_query_segment) ? "query_segment, key_segment" : "RT_NO_SEGMENT, RT_NO_SEGMENT";
    const char *bias = operand_named(o, OPERAND_bias) ? "bias" : "RT_NO_LOGITS";
    return call_with_shape(o, "RtAttend", function,
                           arena_text(&o->m->arena, "%s, %s%s, %s, %s", read, bias, more, segments, written), &fields);
}

char *call_attend(const Operands *o)
{
    return attend(o, "rt_attend", "q, k, v", operand_named(o, OPERAND_sinks) ? ", sinks" : ", RT_NO_LOGITS", "y, lse");
}

char *call_attend_grad(const Operands *o)
{
    return attend(o, "rt_attend_grad", "q, k, v, y, lse, dy", "", "dq, dk, dv, scratch");
}

char *call_attend_bias_grad(const Operands *o)
{
    return attend(o, "rt_attend_bias_grad", "q, k, v, share, lse, dy", "", "dbias");
}
