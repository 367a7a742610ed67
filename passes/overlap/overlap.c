/* overlap.c -- overlaps collectives with computation.
 *
 *   %2 = all_reduce %1 {axis=tp}        =>   %2 = all_reduce %1 {axis=tp, started}
 *   %5 = call %3, %4 {callee=k.dw}           %5 = call %3, %4 {callee=k.dw}
 *   %6 = call %2 {callee=k.norm}             %7 = wait %2
 *                                            %6 = call %7 {callee=k.norm}
 *
 * A collective starts as soon as its operands are there, and is waited for as late as possible: the ops of a function
 * are reordered, each as early as before, but waits last.  A start does not move before a loop or call, since its
 * result would take memory during that.  Where nothing is left between start and wait, they become one op again.
 *
 * Gathers of what `zero` has split wait for overlap_params, sums of gradients for overlap_grads: both take memory.
 * Where a loop slices such parameters, they are gathered one iteration early: while a layer is computed, the parameters
 * of the next one are gathered (prefetch.c).
 */
#include "overlap.h"
#include "flight.h"
#include "manager/pass.h"
#include "map.h"
#include "simplify/cleanup.h"
#include "storage.h"

#include <string.h>

/* Ops that stay together: the collectives of a bucket, their waits; else a single one. */
typedef struct {
    Op **op;
    int count;
    bool starts, waits, calls, listed; /* `calls`: a function that is no kernel */
} Unit;

typedef struct {
    Module *m;
    Func *f;
    int n;
    Unit *unit;
    Map number; /* of an op's unit, from 1 */
    Map over;   /* of an op: the old state (Values) that it writes over, or begins to */
} List;

/* --- Which collectives ------------------------------------------------------------------------- */

static bool may_start(const Module *m, const Op *op)
{
    if (!(info(op)->traits & SENDS))
        return false;
    bool reduces = arg(op, 0)->type.partial != result(op)->type.partial;
    if (op->attrs.purpose == GRADIENT)
        return m->train.overlap_grads;
    return reduces || op->attrs.purpose != WEIGHT || m->train.overlap_params;
}

static void add_wait(Module *m, Func *f, Op *op, Op *before)
{
    Value *started = result(op);
    Builder b = { m, f, before, op->loc, op->path, op->where };
    op->attrs.started = started->type.in_flight = true;
    Value *arrived = build_op(&b, OP_wait, NO_ATTRS, 1, &started);
    Name fresh = arrived->name;
    arrived->name = started->name; /* what others know it by */
    started->name = fresh;
    replace_uses(f, started, arrived);
    arrived->def->args.at[0] = started;
}

Op *after_message(const Op *first)
{
    Op *after = first->next;
    while (after && is_one_message(after, first))
        after = after->next;
    return after;
}

static int64_t last_bucket(const Module *m)
{
    int64_t last = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            last = op->attrs.bucket > last ? op->attrs.bucket : last;
    return last;
}

static bool stands_above(const Op *op, int64_t bucket)
{
    for (op = op->prev; op && op->attrs.bucket != bucket;)
        op = op->prev;
    return op != NULL;
}

/* Members of a bucket that no longer stand together, since a kernel needs one of them early, are messages of their own:
 * the new order of the ops must not put half of one and half of another together. */
static void part_buckets(Func *f, int64_t *last)
{
    for (Op *first = f->first, *after; first; first = after) {
        after = after_message(first);
        if (!first->attrs.bucket || !stands_above(first, first->attrs.bucket))
            continue;
        int64_t bucket = ++*last;
        for (Op *op = first; op != after; op = op->next)
            op->attrs.bucket = bucket;
    }
}

/* A message starts as a whole or not at all. */
static bool split_collectives(Module *m, Func *f)
{
    bool any = false;
    for (Op *first = f->first, *after; first; first = after) {
        after = after_message(first);
        bool may = true;
        for (const Op *op = first; op != after; op = op->next)
            may = may && !op->attrs.started && may_start(m, op);
        for (Op *op = first; may && op != after && op->kind != OP_wait; op = op->next)
            add_wait(m, f, op, after);
        any |= may;
    }
    return any;
}

/* --- Units -------------------------------------------------------------------------------------- */

static bool belongs_to(const Func *f, const Op *op, const Op *first)
{
    if (info(op)->traits & info(first)->traits & WAITS)
        return is_one_message(flight_start(f, arg(op, 0)), flight_start(f, arg(first, 0)));
    return is_one_message(op, first);
}

static bool calls_function(const Module *m, const Op *op)
{
    const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    return callee && callee->role != KERNEL;
}

static void find_units(List *list)
{
    int n = 0;
    for (Op *op = list->f->first; op; op = op->next)
        n++;
    list->unit = NEW_ARRAY(&list->m->arena, Unit, n);
    Op **ops = NEW_ARRAY(&list->m->arena, Op *, n);
    for (Op *op = list->f->first; op; op = op->next) {
        Unit *last = list->n ? &list->unit[list->n - 1] : NULL;
        if (!last || !belongs_to(list->f, op, last->op[0])) {
            last = &list->unit[list->n++];
            *last = (Unit){ .op = ops,
                            .starts = op->attrs.started,
                            .waits = info(op)->traits & WAITS,
                            .calls = calls_function(list->m, op) };
        }
        *ops++ = op;
        last->count++;
        map_put(&list->number, op, (void *)(intptr_t)list->n);
    }
}

static Unit *unit_of(const List *list, const Op *op)
{
    int number = (int)(intptr_t)map_get(&list->number, op);
    return number ? &list->unit[number - 1] : NULL;
}

/* New state is written where the old one is: its readers come first. */
static void find_updates(List *list)
{
    const StepState state = state_of(list->f);
    for (int i = 0; i < state.count; i++) {
        const Op *update = state.after[i]->def;
        update = update && info(update)->traits & WAITS ? arg(update, 0)->def : update;
        Values *over = map_get(&list->over, update);
        if (!over && update)
            map_put(&list->over, update, over = NEW(&list->m->arena, Values));
        if (update)
            push_value(&list->m->arena, over, state.before[i]);
    }
}

/* --- The new order -------------------------------------------------------------------------------- */

/* Who reads what is in flight; NULL: the function hands it on. */
static const Unit *reader_of(const List *list, const Value *in_flight)
{
    for (const Unit *unit = list->unit; unit < list->unit + list->n; unit++)
        for (int i = 0; i < unit->count; i++)
            if (index_of(&unit->op[i]->args, in_flight) >= 0)
                return unit;
    return NULL;
}

/* Has the op read all that it will of this memory?  A collective that has been started reads it until its wait. */
static bool has_read(const List *list, const Op *op, const Value *old)
{
    for (int i = 0; i < op->args.count; i++) {
        if (shown_by(arg(op, i)) != old)
            continue;
        const Unit *reader = op->attrs.started ? reader_of(list, result(op)) : NULL;
        if (!unit_of(list, op)->listed || (reader && !reader->listed))
            return false;
    }
    return true;
}

/* Of what is handed on, has what came to this iteration been waited for? */
static bool has_landed(const List *list, const Op *start)
{
    const int at = handed_on(list->f, start);
    return at < 0 || reader_of(list, list->f->params.at[at])->listed;
}

/* Has everything been listed that reads what this op writes over? */
static bool readers_are_listed(const List *list, const Op *op)
{
    const Values *over = map_get(&list->over, op);
    for (int i = 0; over && i < over->count; i++)
        for (int k = 0; k < list->n; k++)
            for (int j = 0; j < list->unit[k].count; j++)
                if (list->unit[k].op[j] != op && !has_read(list, list->unit[k].op[j], over->at[i]))
                    return false;
    return true;
}

static bool is_ready(const List *list, const Unit *unit)
{
    for (int i = 0; i < unit->count; i++) {
        for (int j = 0; j < unit->op[i]->args.count; j++) {
            const Op *def = arg(unit->op[i], j)->def;
            if (def && !unit_of(list, def)->listed)
                return false;
        }
        if (!readers_are_listed(list, unit->op[i]) || !has_landed(list, unit->op[i]))
            return false;
    }
    return true;
}

/* The next unit: a start, else any op but a wait, else a wait. */
static Unit *next_unit(const List *list)
{
    Unit *other = NULL, *wait = NULL;
    bool is_behind_call = false;
    for (Unit *unit = list->unit; unit < list->unit + list->n; unit++) {
        if (unit->listed)
            continue;
        if (unit->starts ? !is_behind_call && is_ready(list, unit) : false)
            return unit;
        Unit **first = unit->waits ? &wait : &other;
        if (!unit->starts && !*first && is_ready(list, unit))
            *first = unit;
        is_behind_call |= unit->calls;
        if (is_behind_call && other)
            break;
    }
    return other ? other : wait;
}

static void append(Func *f, Op *op)
{
    op->prev = f->last;
    op->next = NULL;
    if (f->last)
        f->last->next = op;
    else
        f->first = op;
    f->last = op;
}

static void list_anew(List *list)
{
    list->f->first = list->f->last = NULL;
    for (int done = 0; done < list->n; done++) {
        Unit *unit = next_unit(list);
        unit->listed = true;
        for (int i = 0; i < unit->count; i++)
            append(list->f, unit->op[i]);
    }
}

/* --- What was in vain ------------------------------------------------------------------------------- */

/* Does the processor have work between the two? */
static bool has_work_between(const Op *start, const Op *wait)
{
    for (const Op *op = start->next; op != wait; op = op->next)
        if (info(op)->family == CONTROL || info(op)->family == LIBRARY)
            return true;
    return false;
}

static void join_idle(Func *f)
{
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        Op *start = info(op)->traits & WAITS ? arg(op, 0)->def : NULL;
        if (!start || has_work_between(start, op))
            continue;
        start->attrs.started = result(start)->type.in_flight = false;
        result(start)->name = result(op)->name;
        replace_uses(f, result(op), result(start));
        remove_op(f, op);
    }
}

static void list_func(Module *m, Func *f)
{
    List list = { .m = m, .f = f, .number.arena = &m->arena, .over.arena = &m->arena };
    find_units(&list);
    find_updates(&list);
    list_anew(&list);
    join_idle(f);
}

static bool starts_any(const Func *f)
{
    const Op *op = f->first;
    while (op && !op->attrs.started)
        op = op->next;
    return op != NULL;
}

void pass_overlap(Module *m);
void pass_overlap(Module *m)
{
    int64_t buckets = last_bucket(m);
    for (Func *f = m->funcs; f; f = f->next) {
        part_buckets(f, &buckets);
        if (split_collectives(m, f))
            prefetch_weights(m, f);
    }
    for (Func *f = m->funcs; f; f = f->next)
        if (starts_any(f))
            list_func(m, f);
}
