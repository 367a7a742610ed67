/* overlap.c -- overlaps collectives with computation.
 *
 *   %2 = all_reduce %1 {axis=tp}        =>   %2 = all_reduce %1 {axis=tp, started}
 *   %5 = call %3, %4 {callee=k.dw}           %5 = call %3, %4 {callee=k.dw}
 *   %6 = call %2 {callee=k.norm}             %7 = wait %2
 *                                            %6 = call %7 {callee=k.norm}
 *
 * A collective starts as soon as its operands are available, and is waited for when it has come, or nothing else can
 * run (listing.c).  A start does not move before a loop or call, since its result would take memory during that.  If
 * nothing is left between start and wait, they become one op again.
 *
 * Reductions of the gradients that a pipeline's loop over micro-batches returns are {early}: the schedule starts them,
 * in the loop, when all micro-batches have passed the chunk that they belong to.
 *
 * Gathers of parameters split by `zero` are overlapped only with overlap_params, sums of gradients only with
 * overlap_grads: both take memory.  If a loop slices such parameters, they are gathered one iteration early: the
 * parameters of the next layer are gathered while a layer is computed (prefetch.c).
 */
#include "overlap.h"
#include "cost/cost.h"
#include "flight.h"
#include "map.h"
#include "micro.h"
#include "ranks.h"
#include "simplify/cleanup.h"
#include "storage.h"
#include "uses.h"

#include <math.h>

/* --- Which collectives ------------------------------------------------------------------------- */

/* What a program itself fetches is as large as a table.  What is put in the place of something else is new state: its
 * memory is free again sooner if nothing is computed meanwhile, unless it is the update of a layer that is computed
 * next. */
static bool may_move(const Func *f, const Op *op)
{
    const Op *end = f->last;
    if (f->role != PLAIN || op->args.count == 1)
        return f->role == PLAIN;
    while (!(info(end)->traits & CARRIES)) /* the op itself, or one after it */
        end = end->prev;
    return end->next;
}

static bool may_start(const Module *m, const Func *f, const Op *op)
{
    if (info(op)->traits & CARRIES)
        return may_move(f, op);
    if (!(info(op)->traits & SENDS) || (is_send(op) && is_part_of_micro(m, f)))
        return false;
    bool reduces = arg(op, 0)->type.partial != result(op)->type.partial;
    if (op->attrs.purpose == GRADIENT)
        return m->train.overlap_grads;
    return reduces || op->attrs.purpose != WEIGHT || m->train.overlap_params;
}

/* Its readers read `instead`. */
static void add_wait(Module *m, Func *f, Op *op, Op *before, Map *instead)
{
    Value *started = result(op);
    Builder b = { m, f, before, op->loc, op->path, op->where };
    op->attrs.started = started->type.in_flight = true;
    Value *arrived = build_op(&b, OP_wait, NO_ATTRS, 1, &started);
    Name fresh = arrived->name;
    arrived->name = started->name; /* readers use this name */
    started->name = fresh;
    map_put(instead, started, arrived);
}

Op *after_message(const Op *first)
{
    Op *after = first->next;
    while (after && is_one_message(after, first))
        after = after->next;
    return after;
}

int64_t last_bucket(const Module *m)
{
    int64_t last = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            last = op->attrs.bucket > last ? op->attrs.bucket : last;
    return last;
}

/* Members of a bucket that are no longer adjacent, since a kernel needs one of them early, become separate messages:
 * the new order of the ops must not merge parts of different ones. */
static void part_buckets(Func *f, int64_t *last)
{
    Arena scratch = { 0 };
    bool *is_above = NEW_ARRAY(&scratch, bool, *last + 1);
    for (Op *first = f->first, *after; first; first = after) {
        const int64_t own = first->attrs.bucket, bucket = own && is_above[own] ? ++*last : own;
        after = after_message(first);
        is_above[own] = true;
        for (Op *op = first; op != after; op = op->next)
            op->attrs.bucket = bucket;
    }
    arena_free(&scratch);
}

/* Splits whole messages into starts and waits. */
static bool split_collectives(Module *m, Func *f)
{
    bool any = false;
    Arena scratch = { 0 };
    Map instead = { .arena = &scratch };
    for (Op *first = f->first, *after; first; first = after) {
        after = after_message(first);
        bool may = true;
        for (Op *op = first; op != after; op = op->next)
            resolve_all(&instead, &op->args);
        for (const Op *op = first; op != after; op = op->next)
            may = may && !op->attrs.started && may_start(m, f, op);
        for (Op *op = first; may && op != after && op->kind != OP_wait; op = op->next)
            add_wait(m, f, op, after, &instead);
        any |= may;
    }
    resolve_all(&instead, &f->results);
    arena_free(&scratch);
    return any;
}

/* --- Units -------------------------------------------------------------------------------------- */

static bool belongs_to(const Func *f, const Op *op, const Op *first)
{
    if (info(op)->traits & info(first)->traits & WAITS)
        return is_one_message(flight_start(f, arg(op, 0)), flight_start(f, arg(first, 0)));
    return is_one_message(op, first);
}

double work_of(Module *m, const Op *op)
{
    const double of_call = 1e15; /* more than any message needs */
    const Func *kernel = kernel_called_by(m, op);
    const Op *inner = kernel ? kernel->first : NULL;
    while (inner && info(inner)->family != PRODUCT)
        inner = inner->next;
    return function_called_by(m, op)                                    ? of_call
           : inner                                                      ? flops_run(m, kernel)
           : info(op)->family == LIBRARY && !(info(op)->traits & JOINS) ? fmax(op_work(m, NULL, op).rank, 1)
                                                                        : 0;
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
                            .calls = function_called_by(list->m, op),
                            .work = work_of(list->m, op) };
        }
        *ops++ = op;
        last->count++;
        map_put(&list->number, op, (void *)(intptr_t)list->n);
    }
}

Unit *unit_of(const List *list, const Op *op)
{
    int number = (int)(intptr_t)map_get(&list->number, op);
    return number ? &list->unit[number - 1] : NULL;
}

static void find_readers(List *list)
{
    list->uses = find_uses(&list->m->arena, list->f);
    for (const Op *op = list->f->first; op; op = op->next)
        for (int i = 0; i < op->args.count; i++) {
            const Value *shown = shown_by(arg(op, i));
            Reader *reader = NEW(&list->m->arena, Reader);
            *reader = (Reader){ op, map_get(&list->shown, shown) };
            map_put(&list->shown, shown, reader);
        }
}

/* Not those that go to another tier: the sooner a tensor comes, the longer it takes memory. */
static void find_leading_views(List *list)
{
    for (Op *op = list->f->last; op; op = op->prev) {
        const bool is_view = info(op)->family == VIEW && !(info(op)->traits & WAITS);
        const Users *users = is_view ? users_of(&list->uses, result(op)) : NULL;
        for (int i = 0; users && i < users->count; i++) {
            const Op *user = users->op[i];
            unit_of(list, op)->leads |=
                user->attrs.started ? (info(user)->traits & SENDS) != 0 : unit_of(list, user)->leads;
        }
    }
}

/* New state is written over the old state: readers of the old state come first. */
static void find_updates(List *list)
{
    const StepState state = state_of(list->f);
    for (int i = 0; i < state.count; i++) {
        const Op *update = state.after[i]->def;
        while (update && info(update)->family == VIEW) /* a wait, say */
            update = arg(update, 0)->def;
        Values *over = map_get(&list->over, update);
        if (!over && update)
            map_put(&list->over, update, over = NEW(&list->m->arena, Values));
        if (update)
            push_value(&list->m->arena, over, state.before[i]);
    }
}

/* --- Waits directly after their starts --------------------------------------------------------- */

/* A message along other axes has other ranks, and often other links.  Messages between ranks have no axis. */
static bool takes_other_links(const Op *op, const Op *start)
{
    const Axes own = start->attrs.axis;
    return info(op)->traits & SENDS && (op->attrs.axis || own) && !(op->attrs.axis & own);
}

/* Is there anything between the two that runs beside the message?  Gradients that are summed over one axis and then
 * over another are under way along both at a time. */
static bool has_work_between(const Op *start, const Op *wait)
{
    for (const Op *op = start->next; op != wait; op = op->next)
        if (info(op)->family == CONTROL || info(op)->family == LIBRARY || takes_other_links(op, start))
            return true;
    return false;
}

static void join_idle(Module *m, Func *f)
{
    Map instead = { .arena = &m->arena };
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        resolve_all(&instead, &op->args);
        Op *start = info(op)->traits & WAITS ? arg(op, 0)->def : NULL;
        if (!start || start->attrs.early || has_work_between(start, op))
            continue;
        start->attrs.started = result(start)->type.in_flight = false;
        result(start)->name = result(op)->name;
        map_put(&instead, result(op), result(start));
        remove_op(f, op);
    }
    resolve_all(&instead, &f->results);
}

static List list_of(Module *m, Func *f, const Op *loop)
{
    List list = { .m = m,
                  .f = f,
                  .number.arena = &m->arena,
                  .over.arena = &m->arena,
                  .shown.arena = &m->arena,
                  .loop = loop && loop->attrs.dims.count ? loop : NULL };
    find_units(&list);
    find_readers(&list);
    find_leading_views(&list);
    find_relays(&list);
    find_updates(&list);
    find_needs(&list);
    return list;
}

double iteration_time(Module *m, Func *f, const Op *loop)
{
    List list = list_of(m, f, loop);
    return choose_policy(&list);
}

static void list_func(Module *m, Func *f, const Map *callers)
{
    List list = list_of(m, f, only_caller(m, callers, f));
    list_anew(&list);
    join_idle(m, f);
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
    const Map callers = note_callers(m);
    for (Func *f = m->funcs; f; f = f->next) {
        part_buckets(f, &buckets);
        if (!split_collectives(m, f))
            continue;
        prefetch_weights(m, f, &callers);
        cross_borders(m, f, &callers);
    }
    start_early(m, func_with_role(m, STEP));
    for (Func *f = m->funcs; f; f = f->next)
        if (starts_any(f))
            list_func(m, f, &callers);
}
