/* cleanup.c -- sharing equal ops, dropping dead ones, inlining: used by passes, itself none. */
#include "cleanup.h"

#include "map.h"

#include <string.h>

/* But for the bucket, which says with what a message is sent and not what is in it. */
static bool same_attrs(const Op *a, const Op *b)
{
    Attrs attrs = a->attrs;
    attrs.bucket = b->attrs.bucket;
    return memcmp(&attrs, &b->attrs, sizeof attrs) == 0;
}

bool same_op(const Op *a, const Op *b)
{
    return a->kind == b->kind && a->args.count == b->args.count &&
           (a->args.count == 0 || memcmp(a->args.at, b->args.at, (size_t)a->args.count * sizeof *a->args.at) == 0) &&
           same_attrs(a, b);
}

/* What equal ops have in common: the first operand, or the kind. */
static const void *key_of(const Op *op) { return op->args.count ? (const void *)arg(op, 0) : (const void *)info(op); }

void share_equal(Func *f)
{
    Arena scratch = { 0 };
    Map latest = { .arena = &scratch };  /* the last op of a key */
    Map earlier = { .arena = &scratch }; /* the op of its key before an op */
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        Op *last = map_get(&latest, key_of(op)), *same = last;
        while (same && !same_op(same, op))
            same = map_get(&earlier, same);
        if (!same) {
            map_put(&earlier, op, last);
            map_put(&latest, key_of(op), op);
            continue;
        }
        for (int i = 0; i < op->results.count; i++)
            replace_uses(f, op->results.at[i], same->results.at[i]);
        remove_op(f, op);
    }
    arena_free(&scratch);
}

static void note_read(Map *read, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        map_put(read, values->at[i], values->at[i]);
}

/* From the end on: who reads a value stands behind its op. */
void drop_dead(Func *f)
{
    Arena scratch = { 0 };
    Map read = { .arena = &scratch }; /* by what stays */
    note_read(&read, &f->results);
    for (Op *op = f->last, *above; op; op = above) {
        above = op->prev;
        bool live = false;
        for (int i = 0; i < op->results.count && !live; i++)
            live = map_get(&read, op->results.at[i]) != NULL;
        if (live)
            note_read(&read, &op->args);
        else
            remove_op(f, op);
    }
    arena_free(&scratch);
}

static bool is_called(const Module *m, const Func *f)
{
    for (const Func *g = m->funcs; g; g = g->next)
        for (const Op *op = g->first; op; op = op->next)
            if (op->attrs.callee == f->name)
                return true;
    return false;
}

void drop_unreached(Module *m)
{
    for (bool again = true; again;) {
        again = false;
        for (Func *f = m->funcs, *next; f; f = next) {
            next = f->next;
            if ((f->role == PLAIN || f->role == KERNEL) && !is_called(m, f)) {
                remove_func(m, f);
                again = true;
            }
        }
    }
}

void inline_call(Module *m, Func *f, Op *call)
{
    const Func *callee = find_func(m, call->attrs.callee);
    Map map = { .arena = &m->arena };
    for (int i = 0; i < callee->params.count; i++)
        map_put(&map, callee->params.at[i], arg(call, i));
    Builder b = builder_at(m, f, call);
    for (const Op *op = callee->first; op; op = op->next) {
        Value **args = NEW_ARRAY(&m->arena, Value *, op->args.count);
        for (int i = 0; i < op->args.count; i++)
            args[i] = map_get(&map, arg(op, i));
        Op *clone = build(&b, op->kind, op->attrs, op->args.count, args);
        clone->path = op->path, clone->where = op->where, clone->loc = op->loc;
        for (int i = 0; i < op->results.count; i++)
            map_put(&map, op->results.at[i], clone->results.at[i]);
    }
    for (int i = 0; i < callee->results.count; i++) {
        Value *value = map_get(&map, callee->results.at[i]);
        replace_uses(f, call->results.at[i], value);
    }
    remove_op(f, call);
}

void inline_calls(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->first, *next; op; op = next) {
            next = op->next;
            if (info(op)->family == CONTROL && !op->attrs.dims.count && find_func(m, op->attrs.callee)->role == PLAIN) {
                inline_call(m, f, op);
                next = f->first; /* what came in may call too */
            }
        }
    drop_unreached(m);
}
