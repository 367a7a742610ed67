/* cleanup.c -- common subexpressions, dead ops, inlining: helpers of passes. */
#include "cleanup.h"

#include "micro.h"
#include "ranks.h"

#include <stdint.h>
#include <string.h>

/* Ignores the bucket, which affects only how a message is sent. */
static bool same_attrs(const Op *a, const Op *b)
{
    Attrs attrs = a->attrs;
    attrs.bucket = b->attrs.bucket;
    return attrs_equal(&attrs, &b->attrs);
}

/* A copy in the order of its operand, made for the sake of its own memory. */
static bool is_own_copy(const Op *op)
{
    return op->kind == OP_reorder && !op->attrs.order.count && !op->attrs.dims.count;
}

/* the same computation on the same operands */
static bool same_op(const Op *a, const Op *b)
{
    return a->kind == b->kind && !is_own_copy(a) && a->args.count == b->args.count &&
           (a->args.count == 0 || memcmp(a->args.at, b->args.at, (size_t)a->args.count * sizeof *a->args.at) == 0) &&
           same_attrs(a, b);
}

static Value *resolve(const Map *instead, Value *value)
{
    for (Value *with; (with = map_get(instead, value));)
        value = with;
    return value;
}

void resolve_all(const Map *instead, Values *values)
{
    for (int i = 0; i < values->count; i++)
        values->at[i] = resolve(instead, values->at[i]);
}

static uint64_t mixed(uint64_t hash, uint64_t with) { return (hash ^ with) * 0x9E3779B97F4A7C15u; }

/* The hash of an op as a key, the same for equal ops: its kind, its operands, and what tells many ops of one kind and
 * operand apart: numbers, parts of a value, names. */
static const void *key_of(const Op *op)
{
    const Attrs *attrs = &op->attrs;
    uint64_t hash = (uint64_t)op->kind + 1, number;
    memcpy(&number, &attrs->value, sizeof number);
    for (int i = 0; i < op->args.count; i++)
        hash = mixed(hash, (uint64_t)(uintptr_t)arg(op, i));
    hash = mixed(mixed(hash, number), (uint64_t)attrs->index);
    hash = mixed(mixed(hash, (uint64_t)attrs->instance), (uint64_t)(uintptr_t)attrs->callee);
    hash = mixed(hash, (uint64_t)(uintptr_t)attrs->dim);
    return (const void *)(uintptr_t)(hash | 1);
}

void note_equal(Func *f, Map *instead)
{
    Arena scratch = { 0 };
    Map latest = { .arena = &scratch };  /* the last op of a key */
    Map earlier = { .arena = &scratch }; /* op -> the previous op of its key */
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        resolve_all(instead, &op->args);
        Op *last = map_get(&latest, key_of(op)), *same = last;
        while (same && !same_op(same, op))
            same = map_get(&earlier, same);
        if (!same) {
            if (last)
                map_put(&earlier, op, last);
            map_put(&latest, key_of(op), op);
            continue;
        }
        for (int i = 0; i < op->results.count; i++)
            map_put(instead, op->results.at[i], same->results.at[i]);
        remove_op(f, op);
    }
    resolve_all(instead, &f->results);
    arena_free(&scratch);
}

void share_equal(Func *f)
{
    Arena scratch = { 0 };
    note_equal(f, &(Map){ .arena = &scratch });
    arena_free(&scratch);
}

void drop_dead(Func *f)
{
    Arena scratch = { 0 };
    remove_dead_ops(f, &(Map){ .arena = &scratch });
    arena_free(&scratch);
}

static void reach(const Module *m, const Func *f, Map *reached)
{
    if (map_get(reached, f))
        return;
    map_put(reached, f, (void *)(uintptr_t)f);
    for (const Op *op = f->first; op; op = op->next)
        if (op->attrs.callee && find_func(m, op->attrs.callee))
            reach(m, find_func(m, op->attrs.callee), reached);
}

void drop_unreached(Module *m)
{
    Arena scratch = { 0 };
    Map reached = { .arena = &scratch };
    for (const Func *f = m->funcs; f; f = f->next)
        if (f->role != PLAIN && f->role != KERNEL)
            reach(m, f, &reached);
    for (Func *f = m->funcs, *next; f; f = next) {
        next = f->next;
        if (!map_get(&reached, f))
            remove_func(m, f);
    }
    arena_free(&scratch);
}

/* --- Calls -------------------------------------------------------------------------------------------- */

/* Inlines the callee's body before the call and maps the call's results to its values. */
static void write_body(Module *m, Func *f, Op *call, Map *instead)
{
    const Func *callee = find_func(m, call->attrs.callee);
    Map map = { .arena = instead->arena };
    for (int i = 0; i < callee->params.count; i++)
        map_put(&map, callee->params.at[i], arg(call, i));
    Builder b = builder_at(m, f, call);
    for (const Op *op = callee->first; op; op = op->next) {
        Value **args = NEW_ARRAY(instead->arena, Value *, op->args.count);
        for (int i = 0; i < op->args.count; i++)
            args[i] = map_get(&map, arg(op, i));
        Op *clone = build(&b, op->kind, op->attrs, op->args.count, args);
        clone->path = op->path, clone->where = op->where, clone->loc = op->loc;
        for (int i = 0; i < op->results.count; i++)
            map_put(&map, op->results.at[i], clone->results.at[i]);
    }
    for (int i = 0; i < callee->results.count; i++) { /* a call is on the ranks of all of its operands */
        Value *own = map_get(&map, callee->results.at[i]);
        const RankSet on = call->results.at[i]->type.on;
        if (!same_ranks(own->type.on, on))
            own = BUILD(&b, OP_hold, ((Attrs){ .on = on }), own);
        map_put(instead, call->results.at[i], own);
    }
}

static bool is_inlined(const Module *m, const Op *op)
{
    return info(op)->family == CONTROL && !op->attrs.dims.count && !is_in_schedule(op) &&
           find_func(m, op->attrs.callee)->role == PLAIN;
}

static void inline_calls_of(Module *m, Func *f)
{
    Arena scratch = { 0 };
    Map instead = { .arena = &scratch };
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        resolve_all(&instead, &op->args);
        if (!is_inlined(m, op))
            continue;
        Op *above = op->prev;
        write_body(m, f, op, &instead);
        remove_op(f, op);
        next = above ? above->next : f->first; /* inlined ops may be calls too */
    }
    resolve_all(&instead, &f->results);
    arena_free(&scratch);
}

void inline_calls(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next)
        inline_calls_of(m, f);
    drop_unreached(m);
}
