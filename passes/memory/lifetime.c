/* lifetime.c -- the last use of each value of a function, for the memory pass. */
#include "flight.h"
#include "memory.h"

#include <stdint.h>

int later(const Map *last, const Value *value, int number)
{
    int known = (int)(intptr_t)map_get(last, value) - 1;
    return known > number ? known : number;
}

Map last_uses(Arena *arena, const Func *f)
{
    int number = 0;
    Map last = { .arena = arena }, first = { .arena = arena }; /* likewise: the op that reads it first */
    for (const Op *op = f->first; op; op = op->next)
        number++;
    int end = number;
    for (int i = 0; i < f->results.count; i++)
        map_put(&last, f->results.at[i], (void *)(intptr_t)(end + 1));
    for (const Op *op = f->last; op; op = op->prev) {
        int through = --number;
        for (int i = 0; i < op->results.count && info(op)->family == VIEW; i++) /* a view shows it */
            through = later(&last, op->results.at[i], through);
        int wait = op->attrs.started ? (int)(intptr_t)map_get(&first, result(op)) - 1 : through;
        through = wait < 0 ? end : wait > through ? wait : through;
        for (int i = 0; i < op->args.count; i++) {
            map_put(&last, arg(op, i), (void *)(intptr_t)(later(&last, arg(op, i), through) + 1));
            map_put(&first, arg(op, i), (void *)(intptr_t)(number + 1));
        }
        const Value *sent = info(op)->traits & WAITS ? sent_before(f, arg(op, 0)) : NULL;
        if (sent)
            map_put(&last, sent, (void *)(intptr_t)(later(&last, sent, number) + 1));
    }
    return last;
}

static void note_use(Map *uses, const Value *value)
{
    map_put(uses, value, (void *)((intptr_t)map_get(uses, value) + 1));
}

const Lifetimes *lifetimes_of(const Module *m, Map *all, const Func *f)
{
    Lifetimes *own = map_get(all, f);
    if (own)
        return own;
    own = NEW((Arena *)&m->arena, Lifetimes);
    *own = (Lifetimes){ last_uses(all->arena, f), { .arena = all->arena }, { .arena = all->arena } };
    intptr_t number = 0;
    for (const Op *op = f->first; op; op = op->next) {
        map_put(&own->number, op, (void *)++number);
        for (int i = 0; i < op->args.count; i++)
            note_use(&own->uses, arg(op, i));
    }
    for (int i = 0; i < f->results.count; i++)
        note_use(&own->uses, f->results.at[i]);
    map_put(all, f, own);
    return own;
}
