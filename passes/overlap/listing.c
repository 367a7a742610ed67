/* listing.c -- schedules the ops of a function: of those whose operands are there, which runs next.
 *
 * In a layer nothing needs the gradients of weights, so that they can be computed while a message of activations is
 * under way.  An op that leads to a message comes before one that does not, and a wait when its message has come, by a
 * clock that runs along: an op takes as long as its FLOPs, and a message as long as the FLOPs that a GPU computes while
 * it is sent, behind those along the same axes.  What nothing tells apart keeps its order.  Of several policies, that
 * one is taken with which the last op has run soonest.
 */
#include "cost/cost.h"
#include "flight.h"
#include "map.h"
#include "overlap.h"
#include "uses.h"

#include <math.h>

/* --- Which are ready ----------------------------------------------------------------------------- */

/* The reader of a value in flight; NULL: the function returns it. */
static Unit *reader_of(const List *list, const Value *in_flight)
{
    const Users *users = users_of(&list->uses, in_flight);
    return users->count ? unit_of(list, users->op[0]) : NULL;
}

/* The other one is listed before the unit. */
static void need(const List *list, Unit *unit, Unit *other)
{
    if (!other || other == unit)
        return;
    Follower *follower = NEW(&list->m->arena, Follower);
    *follower = (Follower){ unit, other->followers };
    other->followers = follower;
    unit->needs++;
}

/* All that read the state which this op overwrites have finished.  A started collective reads it until its wait; if the
 * op is the loop that carries it, each iteration waits before it writes. */
static void need_readers(const List *list, Unit *unit, const Op *op)
{
    const Values *over = map_get(&list->over, op);
    for (int i = 0; over && i < over->count; i++)
        for (const Reader *reader = map_get(&list->shown, over->at[i]); reader; reader = reader->next) {
            if (reader->op == op)
                continue;
            need(list, unit, unit_of(list, reader->op));
            if (reader->op->attrs.started)
                need(list, unit, reader_of(list, result(reader->op)));
        }
}

void find_needs(List *list)
{
    list->ready = NEW_ARRAY(&list->m->arena, int, list->n + 1);
    for (Unit *unit = list->unit; unit < list->unit + list->n; unit++)
        for (int i = 0; i < unit->count; i++) {
            const Op *op = unit->op[i];
            const int at =
                handed_on(list->f, op); /* of a collective for the next iteration: this one's is waited for */
            for (int j = 0; j < op->args.count; j++)
                need(list, unit, arg(op, j)->def ? unit_of(list, arg(op, j)->def) : NULL);
            need_readers(list, unit, op);
            if (at >= 0)
                need(list, unit, reader_of(list, list->f->params.at[at]));
        }
}

static void add_ready(List *list, const Unit *unit)
{
    const int number = (int)(unit - list->unit);
    int at = list->nready++;
    for (; at > 0 && list->ready[at - 1] > number; at--)
        list->ready[at] = list->ready[at - 1];
    list->ready[at] = number;
}

static void take_ready(List *list, const Unit *unit)
{
    int at = 0;
    while (list->ready[at] != unit - list->unit)
        at++;
    for (list->nready--; at < list->nready; at++)
        list->ready[at] = list->ready[at + 1];
}

/* Does nothing but the function's caller read what it waits for? */
static bool is_only_returned(const List *list, const Unit *wait)
{
    bool only = true;
    for (int i = 0; i < wait->count; i++)
        only &= users_of(&list->uses, result(wait->op[i]))->count == 0;
    return only;
}

/* Does it wait for a tensor that the iteration before has begun to fetch?  That had all its time: the sooner it is
 * read, the longer may what is made of it take to be put away. */
static bool keeps_place(const List *list, const Unit *wait)
{
    const Value *in_flight = arg(wait->op[0], 0);
    return !in_flight->def && info(flight_start(list->f, in_flight))->traits & CARRIES;
}

/* When the message comes, by the list's clock.  What an iteration before has started has come. */
static double arrival_for(const List *list, const Unit *wait)
{
    const Op *start = arg(wait->op[0], 0)->def;
    return start ? unit_of(list, start)->arrival : 0;
}

static bool has_come(const List *list, const Unit *wait) { return arrival_for(list, wait) <= list->now; }

/* When no message is under way any more along the axes of this one. */
static double idle_from(const List *list, const Op *start)
{
    double idle = 0;
    for (int axis = 0; axis < MAX_AXES; axis++)
        idle = fmax(idle, start->attrs.axis >> axis & 1 ? list->idle[axis] : 0);
    return idle;
}

/* The order in which units are listed, of those that are ready. */
typedef enum {
    AT_ONCE,     /* starts a message, or what one is behind that takes no time */
    SOON,        /* starts a message that only gradients of weights need */
    URGENT,      /* a message needs it */
    URGENT_COME, /* a wait that a message needs, for one that has come */
    BESIDE,      /* any other op: it runs beside messages */
    COME,        /* any other wait, for one that has come */
    URGENT_WAIT,
    LATE,
    LAST, /* a wait for what the function only returns */
    N_RANKS
} Rank;

static Rank rank_of_wait(const List *list, const Unit *wait)
{
    const bool come = has_come(list, wait);
    return wait->relay && come            ? AT_ONCE
           : keeps_place(list, wait)      ? (wait->urgent ? URGENT : BESIDE)
           : is_only_returned(list, wait) ? LAST
           : wait->urgent                 ? (come ? URGENT_COME : URGENT_WAIT)
           : come                         ? COME
                                          : LATE;
}

/* Views take no time: the message of one is as ready as that of a whole tensor behind it.  So is, nearly, one behind a
 * message that has come, if only short ops are between the two. */
static Rank rank_of(const List *list, const Unit *unit)
{
    if (unit->waits)
        return rank_of_wait(list, unit);
    if (unit->starts && !unit->urgent && starts_activation(unit->op[0]))
        return (list->policy & BEHIND_LAST && !list->urgent) || idle_from(list, unit->op[0]) <= list->now ? SOON : LATE;
    return unit->starts || unit->leads || unit->relay ? AT_ONCE : unit->urgent ? URGENT : BESIDE;
}

/* Is it listed before the best one so far of its rank? */
static bool is_better(const List *list, const Unit *unit, const Unit *best, Rank rank)
{
    if (!best || rank != URGENT_WAIT || !(list->policy & FIRST_COME))
        return !best;
    const Op *start = arg(unit->op[0], 0)->def, *other = arg(best->op[0], 0)->def;
    return starts_activation(start) && starts_activation(other) && arrival_for(list, unit) < arrival_for(list, best);
}

/* The first of those that are listed first; nothing of what takes no time behind a call, which would hold its memory.
 */
static Unit *first_unit(const List *list)
{
    Unit *best[N_RANKS] = { NULL };
    for (int i = 0; i < list->nready && !best[AT_ONCE]; i++) {
        Unit *unit = &list->unit[list->ready[i]];
        const bool is_behind_call = list->ready[i] > list->call;
        if (is_behind_call && (best[SOON] || best[URGENT] || best[BESIDE]))
            break;
        const Rank rank = rank_of(list, unit);
        if (is_better(list, unit, best[rank], rank) && !(is_behind_call && rank <= SOON))
            best[rank] = unit;
    }
    Rank rank = 0;
    while (!best[rank])
        rank++;
    return best[rank];
}

/* The most work of a reader of a value, or of a view of it. */
static double work_of_readers(const List *list, const Value *value)
{
    double most = 0;
    const Users *users = users_of(&list->uses, value);
    for (int i = 0; i < users->count; i++) {
        const Op *op = users->op[i];
        most = fmax(most, info(op)->family == VIEW ? work_of_readers(list, result(op)) : unit_of(list, op)->work);
    }
    return most;
}

/* A wait of a relay comes before its message does if the work that is left beside both messages is better kept for the
 * second one. */
static bool pays(const List *list, const Unit *wait, double next_work)
{
    const Op *start = arg(wait->op[0], 0)->def;
    const Relay *relay = &list->relay[wait->relay - 1];
    const double second = list->unit[relay->next - 1].message;
    return start && relay->left - next_work < second && unit_of(list, start)->arrival - list->now < second;
}

static Unit *next_unit(const List *list)
{
    Unit *first = first_unit(list);
    const double work = first->waits ? work_of_readers(list, result(first->op[0])) : first->work;
    for (int i = 0; i < list->nready && work > 0; i++) {
        Unit *unit = &list->unit[list->ready[i]];
        if (unit->waits && unit->relay && pays(list, unit, work))
            return unit;
    }
    return first;
}

/* Outside of loops, anything that takes time is enough beside a message: a function may have the update of all weights,
 * and while one is waited for, the others take memory. */
static double message_time(const List *list, const Unit *unit)
{
    const double flops_a_byte = 1500; /* an H100 computes 650 Tflop/s in bf16, and sends 320 GB/s over NVLink */
    double bytes = 0;
    for (int i = 0; i < unit->count && unit->starts && info(unit->op[0])->traits & SENDS; i++)
        bytes += op_traffic(list->m, unit->op[i]).sent;
    return list->loop ? flops_a_byte * bytes : unit->starts;
}

/* An urgent message, which the iteration waits for itself. */
static bool is_for_this_iteration(const List *list, const Unit *unit)
{
    return unit->starts && unit->urgent && handed_on(list->f, unit->op[0]) < 0;
}

/* The unit is the next one: now it is later, by its work or until its message has come. */
static void pass_time(List *list, Unit *unit)
{
    const Op *start = unit->waits ? arg(unit->op[0], 0)->def : NULL;
    list->now = start ? fmax(list->now, unit_of(list, start)->arrival) : list->now + unit->work;
    for (int i = 0; i < list->relays && unit->work > 0; i++)
        list->relay[i].left -= unit->after[i / 64] >> i % 64 & 1 ? 0 : unit->work;
    if (!unit->starts)
        return;
    list->urgent -= is_for_this_iteration(list, unit);
    unit->arrival = fmax(list->now, idle_from(list, unit->op[0])) + unit->message;
    for (int axis = 0; axis < MAX_AXES; axis++)
        if (starts_activation(unit->op[0]) && unit->op[0]->attrs.axis >> axis & 1)
            list->idle[axis] = unit->arrival;
}

static void pass_calls(List *list)
{
    while (list->call < list->n && (list->unit[list->call].listed || !list->unit[list->call].calls))
        list->call++;
}

static void begin_list(List *list)
{
    list->now = list->nready = list->urgent = list->call = 0;
    for (int axis = 0; axis < MAX_AXES; axis++)
        list->idle[axis] = 0;
    for (int i = 0; i < list->relays; i++)
        list->relay[i].left = list->relay[i].work;
    for (int i = 0; i < list->n; i++) {
        list->unit[i].listed = false;
        list->unit[i].missing = list->unit[i].needs;
        if (!list->unit[i].missing)
            add_ready(list, &list->unit[i]);
        list->unit[i].message = message_time(list, &list->unit[i]);
        list->urgent += is_for_this_iteration(list, &list->unit[i]);
    }
    pass_calls(list);
}

static Unit *take_next(List *list)
{
    Unit *unit = next_unit(list);
    unit->listed = true;
    take_ready(list, unit);
    pass_calls(list);
    for (const Follower *follower = unit->followers; follower; follower = follower->next)
        if (--follower->unit->missing == 0)
            add_ready(list, follower->unit);
    pass_time(list, unit);
    return unit;
}

/* When the last unit has run, and what the next iteration waits for has come. */
static double time_with(List *list, Policy policy)
{
    list->policy = policy;
    begin_list(list);
    for (int done = 0; done < list->n; done++)
        take_next(list);
    double end = list->now;
    for (int i = 0; i < list->n; i++)
        if (starts_activation(list->unit[i].op[0]))
            end = fmax(end, list->unit[i].arrival);
    return end;
}

double choose_policy(List *list)
{
    double least = time_with(list, IN_ORDER);
    Policy best = IN_ORDER;
    for (Policy policy = IN_ORDER + 1; list->loop && policy < N_POLICIES; policy++) {
        const double time = time_with(list, policy);
        best = time < least ? policy : best;
        least = fmin(time, least);
    }
    list->policy = best;
    return least;
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

void list_anew(List *list)
{
    choose_policy(list);
    begin_list(list);
    list->f->first = list->f->last = NULL;
    for (int done = 0; done < list->n; done++) {
        Unit *unit = take_next(list);
        for (int i = 0; i < unit->count; i++)
            append(list->f, unit->op[i]);
    }
}
