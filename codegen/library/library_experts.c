/* library_experts.c -- the shape arguments of the runtime's kernels for mixtures of experts. */
#include "library.h"

#include <inttypes.h>

/* --- top_k: rows [outer, inner] ------------------------------------------------------------------ */

char *call_top_k(const Operands *o)
{
    const Value *const *v = o->value;
    const Name from = o->op->attrs.dim, to = o->op->attrs.dims.dim[0].name;
    Names rows = { 0 };
    DimGroup groups[2];
    for (int i = 0; i < v[0]->type.rank; i++)
        if (v[0]->type.dim[i].name != from)
            add_name(&rows, v[0]->type.dim[i].name);
    if (!find_groups(o, &rows, "other", 2, groups))
        return NULL;
    Text fields;
    open_text(&fields);
    put_number(&fields, "outer", groups[0].size);
    put_number(&fields, "inner", groups[1].size);
    put_number(&fields, "count", size_along(o, v[0], from));
    put_number(&fields, "choices", size_along(o, v[1], to));
    for (int i = 0; i < 2; i++) {
        const Name own = i ? to : from;
        put_strides(o, &fields, i, i ? "y" : "x", 3,
                    (Access){ 3,
                              { groups[0].size, groups[1].size, size_along(o, v[i], own) },
                              { groups[0].stride[i], groups[1].stride[i], stride_of(v[i], own) } });
    }
    put_text(&fields, "type", element_constant(v[0]->type.dtype));
    return call_with_shape(o, "RtTopK", "rt_top_k", arena_text(&o->m->arena, "x, chosen%s", o->more), &fields);
}

/* --- place: queues [groups, count] ---------------------------------------------------------------- */

/* The dims of a queue, and those around it. */
static void split_dims(const Operands *o, const Value *place, Names *around, Names *queue)
{
    for (int i = 0; i < place->type.rank; i++) {
        const Name dim = place->type.dim[i].name;
        add_name(has_name(&o->op->attrs.over, dim) ? queue : around, dim);
    }
}

char *call_place(const Operands *o)
{
    Names around = { 0 }, queue = { 0 };
    DimGroup group, count;
    split_dims(o, o->value[1], &around, &queue);
    if (!find_groups(o, &around, "other", 1, &group) || !find_groups(o, &queue, "queue", 1, &count))
        return NULL;
    if (count.size > 1 && (count.stride[0] != 1 || count.stride[1] != 1))
        return refuse_layout(o, "the queue is not contiguous");
    for (int i = 0; i < 2; i++)
        check_operand(o, i, &(const Access){ 2, { group.size, count.size }, { group.stride[i], 1 } });
    const Dim *experts = &o->op->attrs.dims.dim[0];
    Text fields;
    open_text(&fields);
    put_number(&fields, "groups", group.size);
    put_number(&fields, "count", count.size);
    put_number(&fields, "experts", experts->size);
    put_number(&fields, "chosen", group.stride[0]);
    put_number(&fields, "place", group.stride[1]);
    put_dim(o, &fields, experts);
    put_text(&fields, "where", string_text(o->m, o->op->where ? o->op->where : "?"));
    return call_with_shape(o, "RtQueueShape", "rt_place", arena_text(&o->m->arena, "chosen, place%s", o->more),
                           &fields);
}

/* --- dispatch, combine, collect: rows [groups, outer, inner, post] and [groups, experts, slots, post] ------------
 *
 * In a queue are the tokens, and the choices of each, which collect adds up. */

typedef struct {
    DimGroup group, queue[2], added, post;
} RouteDims;

static bool find_route_dims(const Operands *o, int by_token, int by_slot, RouteDims *r)
{
    const Type *place = &o->value[2]->type, *token = &o->value[by_token]->type, *slot = &o->value[by_slot]->type;
    Names around = { 0 }, queue = { 0 }, added = { 0 }, post = { 0 };
    for (int i = 0; i < place->rank; i++) {
        const Name dim = place->dim[i].name;
        const bool is_added = o->op->attrs.key && has_name(&o->op->attrs.over, dim);
        add_name(is_added ? &added : find_dim(slot, dim) >= 0 ? &around : &queue, dim);
    }
    for (int i = 0; i < token->rank; i++)
        if (find_dim(place, token->dim[i].name) < 0)
            add_name(&post, token->dim[i].name);
    if (!find_groups(o, &around, "other", 1, &r->group) || !find_groups(o, &queue, "queue", 2, r->queue) ||
        !find_groups(o, &added, "summed", 1, &r->added) || !find_groups(o, &post, "inner", 1, &r->post))
        return false;
    if (r->post.size > 1 && (r->post.stride[by_token] != 1 || r->post.stride[by_slot] != 1))
        return refuse_layout(o, "rows are not contiguous");
    return true;
}

static void put_walked(const Operands *o, const RouteDims *r, int operand, const char *name, Text *fields)
{
    put_strides(o, fields, operand, name, 3,
                (Access){ 5,
                          { r->group.size, r->queue[0].size, r->queue[1].size, r->added.size, r->post.size },
                          { r->group.stride[operand], r->queue[0].stride[operand], r->queue[1].stride[operand],
                            r->added.stride[operand], r->post.stride[operand] } });
}

/* The rows by slot. */
static void put_table(const Operands *o, const RouteDims *r, int by_slot, Name experts, Name slots, Text *fields)
{
    const Value *table = o->value[by_slot];
    const int64_t nexperts = size_along(o, table, experts), nslots = size_along(o, table, slots);
    put_number(fields, "experts", nexperts);
    put_number(fields, "slots", nslots);
    put_strides(o, fields, by_slot, "table", 3,
                (Access){ 4,
                          { r->group.size, nexperts, nslots, r->post.size },
                          { r->group.stride[by_slot], stride_of(table, experts), stride_of(table, slots), 1 } });
    put_part(o, fields, &table->type.dim[find_dim(&table->type, experts)], "expert");
    put_part(o, fields, &table->type.dim[find_dim(&table->type, slots)], "slot");
    put_text(fields, "type", element_constant(table->type.dtype));
}

static bool put_route(const Operands *o, int by_token, int by_slot, Name experts, Name slots, RouteDims *r,
                      Text *fields)
{
    if (!find_route_dims(o, by_token, by_slot, r))
        return false;
    open_text(fields);
    put_number(fields, "groups", r->group.size);
    put_number(fields, "outer", r->queue[0].size);
    put_number(fields, "inner", r->queue[1].size);
    put_number(fields, "post", r->post.size);
    put_walked(o, r, by_token, "token", fields);
    put_walked(o, r, 1, "chosen", fields);
    put_walked(o, r, 2, "place", fields);
    put_table(o, r, by_slot, experts, slots, fields);
    return true;
}

static char *route(const Operands *o, int by_token, int by_slot, Name experts, Name slots, const char *function)
{
    RouteDims r;
    Text fields;
    if (o->value[0]->type.dtype != o->value[3]->type.dtype)
        return refuse_layout(o, "%s to %s", dtype_name[o->value[0]->type.dtype], dtype_name[o->value[3]->type.dtype]);
    if (!put_route(o, by_token, by_slot, experts, slots, &r, &fields))
        return NULL;
    return call_with_shape(o, "RtRoute", function, arena_text(&o->m->arena, "x, chosen, place, y%s", o->more), &fields);
}

char *call_dispatch(const Operands *o)
{
    const Dims *made = &o->op->attrs.dims;
    return route(o, 0, 3, made->dim[0].name, made->dim[1].name, "rt_dispatch");
}

char *call_combine(const Operands *o) { return route(o, 3, 0, o->op->attrs.dim, o->op->attrs.key, "rt_combine"); }

char *call_collect(const Operands *o)
{
    const bool has_weight = operand_named(o, OPERAND_weight) != NULL;
    RouteDims r;
    Text fields;
    if (!put_route(o, o->count - 1, 0, o->op->attrs.dim, o->op->attrs.key, &r, &fields))
        return NULL;
    put_number(&fields, "added", r.added.size);
    put_text(&fields, "step",
             arena_text(&o->m->arena, "{ %" PRId64 ", %" PRId64 ", %" PRId64 " }", r.added.stride[1], r.added.stride[2],
                        has_weight ? r.added.stride[3] : 0));
    if (has_weight)
        put_walked(o, &r, 3, "weight", &fields);
    return call_with_shape(
        o, "RtRoute", "rt_collect",
        arena_text(&o->m->arena, "x, chosen, place, %s, y%s", has_weight ? "weight" : "RT_NO_WEIGHT", o->more),
        &fields);
}
