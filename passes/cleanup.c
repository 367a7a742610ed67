/* cleanup.c -- sharing equal ops, dropping dead ones, inlining: used by passes, itself none. */
#include "cleanup.h"

#include "map.h"

#include <string.h>

bool same_op(const Op *a, const Op *b)
{
    return a->kind == b->kind && a->args.count == b->args.count &&
           (a->args.count == 0 || memcmp(a->args.at, b->args.at, (size_t)a->args.count * sizeof *a->args.at) == 0) &&
           memcmp(&a->attrs, &b->attrs, sizeof a->attrs) == 0;
}

/* Linear search: a function has some hundred ops. */
void share_equal(Func *f)
{
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        for (Op *above = f->first; above != op; above = above->next) {
            if (!same_op(above, op))
                continue;
            for (int i = 0; i < op->results.count; i++)
                replace_uses(f, op->results.at[i], above->results.at[i]);
            remove_op(f, op);
            break;
        }
    }
}

void drop_dead(Func *f)
{
    for (Op *op = f->last, *above; op; op = above) {
        above = op->prev;
        bool live = false;
        for (int i = 0; i < op->results.count && !live; i++)
            live = is_used(f, op->results.at[i]);
        if (!live)
            remove_op(f, op);
    }
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
        Value *args[MAX_RESULTS];
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
