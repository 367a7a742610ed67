/* sized_scratch.c -- the least scratch of a loop: what its function has in memory at once, but what it gets and
 * returns.
 *
 * Values that are read behind an op, and made before, have memory of their own then, whatever is written in place. */
#include "sized_read.h"

#include "storage.h"

typedef struct {
    const Module *m;
    const Func *f;
    Map last;     /* of a value: the op that reads it last, by its number from 1 */
    Map returned; /* values */
} Lives;

static Lives lives_of(const Module *m, const Func *f, Arena *arena)
{
    Lives lives = { .m = m, .f = f, .last.arena = arena, .returned.arena = arena };
    intptr_t number = 0;
    for (const Op *op = f->first; op; op = op->next) {
        number++;
        for (int i = 0; i < op->args.count; i++)
            map_put(&lives.last, shown_by(arg(op, i)), (void *)number);
    }
    for (int i = 0; i < f->results.count; i++)
        map_put(&lives.returned, shown_by(f->results.at[i]), (void *)f);
    return lives;
}

static bool grows(const Lives *lives, const Type *type)
{
    bool any = false;
    for (int i = 0; i < type->rank; i++)
        any |= grows_with_batch(lives->m, type->dim[i].name);
    return any;
}

/* Gradients of weights may be added to their sums in place; but not what a message brings. */
static bool has_memory(const Lives *lives, const Value *value)
{
    const bool is_apart = info(value->def)->traits & SENDS || grows(lives, &value->type);
    return is_apart && shown_by(value) == value && info(value->def)->family != LEAF && !value->type.tier &&
           !map_get(&lives->returned, value);
}

/* Calls it for each value that op number `from` or one before it makes, and one behind op number `to` reads. */
static void visit_lives(const Lives *lives, intptr_t at, TypeVisit visit, void *context)
{
    intptr_t number = 0;
    for (const Op *op = lives->f->first; op && ++number <= at; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            if (has_memory(lives, op->results.at[i]) && (intptr_t)map_get(&lives->last, op->results.at[i]) > at)
                visit(context, &op->results.at[i]->type);
}

void read_scratch(Reader *r, const Op *loop, TypeVisit visit, void *context)
{
    const Lives lives = lives_of(r->m, find_func(r->m, loop->attrs.callee), r->arena);
    int count = 0;
    for (const Op *op = lives.f->first; op; op = op->next)
        count++;
    int64_t *change = NEW_ARRAY(r->arena, int64_t, count + 2), live = 0, most = 0; /* of bytes, by number of an op */
    intptr_t number = 0, at = 0;
    for (const Op *op = lives.f->first; op; op = op->next) {
        number++;
        for (int i = 0; i < op->results.count; i++) {
            const Value *value = op->results.at[i];
            const intptr_t last = (intptr_t)map_get(&lives.last, value);
            if (last <= number || !has_memory(&lives, value))
                continue;
            change[number] += local_bytes(r->m, &value->type);
            change[last] -= local_bytes(r->m, &value->type);
        }
    }
    for (number = 1; number <= count; number++) {
        live += change[number];
        at = live > most ? number : at;
        most = live > most ? live : most;
    }
    visit_lives(&lives, at, visit, context);
}
