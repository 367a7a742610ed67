/* sized_scratch.c -- the least scratch of a loop: what its function has in memory at once, but what it gets and
 * returns.  Messages that one turn starts and the next one waits for are apart: a loop of one turn has none.
 *
 * Values that are read behind an op, and made before, have memory of their own then, whatever is written in place. */
#include "sized_read.h"

#include "storage.h"

typedef struct {
    const Module *m;
    const Func *f;
    intptr_t count; /* of its ops */
    Map last;       /* of a value: the op that reads it last, by its number from 1 */
    Map sent;       /* values of which messages are */
    Map returned;   /* values */
} Lives;

/* What a started message takes stays until it has gone, unless it arrives in the same place. */
static void note_gone(Lives *lives, const Op *wait, intptr_t number)
{
    const Op *start = arg(wait, 0)->def;
    if (start && start->attrs.started && !(info(start)->traits & IN_PLACE))
        map_put(&lives->last, shown_by(arg(start, 0)), (void *)number);
}

static Lives lives_of(const Module *m, const Func *f, Arena *arena)
{
    Lives lives = { .m = m, .f = f, .last.arena = arena, .sent.arena = arena, .returned.arena = arena };
    for (const Op *op = f->first; op; op = op->next) {
        lives.count++;
        for (int i = 0; i < op->args.count; i++)
            map_put(&lives.last, shown_by(arg(op, i)), (void *)lives.count);
        if (info(op)->traits & SENDS)
            map_put(&lives.sent, shown_by(arg(op, 0)), (void *)op);
        if (info(op)->traits & WAITS)
            note_gone(&lives, op, lives.count);
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

/* Gradients of weights may be added to their sums in place; but not what a message brings, or takes. */
static bool has_memory(const Lives *lives, const Value *value)
{
    const bool is_apart =
        info(value->def)->traits & SENDS || map_get(&lives->sent, value) || grows(lives, &value->type);
    return is_apart && shown_by(value) == value && info(value->def)->family != LEAF && !value->type.tier &&
           !map_get(&lives->returned, value);
}

/* Calls it for each value, with the numbers of the ops from which on, and before which, it has memory. */
typedef void (*LifeVisit)(void *context, const Value *value, intptr_t from, intptr_t end);
static void visit_values(const Lives *lives, LifeVisit visit, void *context)
{
    intptr_t number = 0;
    for (const Op *op = lives->f->first; op; op = op->next) {
        number++;
        for (int i = 0; i < op->results.count; i++) {
            const intptr_t last = (intptr_t)map_get(&lives->last, op->results.at[i]);
            if (last > number && has_memory(lives, op->results.at[i]))
                visit(context, op->results.at[i], number, last);
        }
    }
}

static void visit_flights(const Lives *lives, LifeVisit visit, void *context)
{
    for (int i = 0; i < lives->f->params.count; i++) {
        const Value *value = lives->f->params.at[i];
        if (value->type.in_flight && !value->type.tier)
            visit(context, value, 1, (intptr_t)map_get(&lives->last, value));
    }
}

typedef struct {
    const Module *m;
    int64_t *change; /* of bytes, by number of an op */
} Changes;

static void note_change(void *context, const Value *value, intptr_t from, intptr_t end)
{
    const Changes *changes = context;
    const int64_t bytes = end > from ? local_bytes(changes->m, &value->type) : 0;
    changes->change[from] += bytes, changes->change[end] -= bytes;
}

typedef struct {
    intptr_t at;
    TypeVisit visit;
    void *context;
} Visiting;

static void visit_live(void *context, const Value *value, intptr_t from, intptr_t end)
{
    const Visiting *v = context;
    if (from <= v->at && end > v->at)
        v->visit(v->context, &value->type);
}

void read_scratch(Reader *r, const Op *loop, TypeVisit visit, void *scratch, void *flights)
{
    const Lives lives = lives_of(r->m, find_func(r->m, loop->attrs.callee), r->arena);
    int64_t *change = NEW_ARRAY(r->arena, int64_t, lives.count + 2), live = 0, most = 0;
    intptr_t at = 0;
    visit_values(&lives, note_change, &(Changes){ r->m, change });
    visit_flights(&lives, note_change, &(Changes){ r->m, change });
    for (intptr_t number = 1; number <= lives.count; number++) {
        live += change[number];
        at = live > most ? number : at;
        most = live > most ? live : most;
    }
    visit_values(&lives, visit_live, &(Visiting){ at, visit, scratch });
    visit_flights(&lives, visit_live, &(Visiting){ at, visit, flights });
}
