/* wait.c -- messages that are under way, and waiting for them.  A waiting rank mostly sleeps, to leave the cores to the
 * computation. */
#include "comm.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

struct RtUnderWay {
    RtUnderWay *next;
    RtExchange *exchange;
    const RtGroup *group;
    const RtCollective *of;
    double begun;    /* or when this rank, that was stopped, went on */
    bool has_called; /* a time-out has passed */
};

/* --- Start and end ------------------------------------------------------------------------------- */

RtUnderWay *rt_messages_start(Rt *rt, const RtGroup *group, const RtCollective *of, const RtMessage to[],
                              const RtMessage from[])
{
    RtUnderWay *x = rt_allocate(1, sizeof *x), **last = &rt->waiting.first;
    *x = (RtUnderWay){ .group = group, .of = of, .begun = rt_seconds() };
    if (!rt->waiting.first)
        rt->waiting.looked = x->begun;
    while (*last)
        last = &(*last)->next;
    *last = x;
    rt->waiting.moved = x->begun;
    rt->waiting.turn = 0;
    x->exchange = rt->program->comm->start(group->channel, to, from);
    return x;
}

bool rt_messages_are_done(Rt *rt, RtUnderWay *x)
{
    RtUnderWay **at = &rt->waiting.first;
    if (!rt->program->comm->is_done(x->exchange))
        return false;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    rt->program->comm->end(x->exchange);
    free(x);
    rt->waiting.moved = rt_seconds();
    rt->waiting.turn = 0;
    return true;
}

/* --- After the time-out -------------------------------------------------------------------------- */

/* Calls the ranks that it waits for, and listens for a while; stops if the messages arrive, since others may then wait
 * for this rank. */
static void call_others(const Rt *rt, const RtUnderWay *x, const bool *awaited, bool *answered)
{
    enum { SECONDS = 2 };
    const RtComm *comm = rt->program->comm;
    for (int rank = 0; rank < rt->ranks; rank++)
        if (awaited[rank])
            comm->call(rank);
    for (double begin = rt_seconds(); rt_seconds() - begin < SECONDS && !comm->is_done(x->exchange);) {
        for (int rank; (rank = comm->listen()) >= 0;)
            answered[rank] = true;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

/* The ranks that it waits for: those without a message so far or, if all have sent, those that have not received its
 * messages. */
static void find_awaited(const Rt *rt, const RtUnderWay *x, bool *awaited)
{
    const RtGroup *group = x->group;
    int count = 0;
    for (int q = 0; q < group->count; q++)
        count += awaited[group->rank[q]] = q != group->own && !rt->program->comm->has_come(x->exchange, q);
    for (int q = 0; q < group->count && count == 0; q++)
        awaited[group->rank[q]] = q != group->own;
}

static char *places_text(const Rt *rt, const bool *listed)
{
    char *text = rt_text("%s", "");
    for (int rank = 0; rank < rt->ranks; rank++)
        if (listed[rank])
            text = rt_text("%s%s%s", text, *text ? ", " : "", rt_comm_place(rt, rank));
    return text;
}

const char *rt_action_text(const Rt *rt)
{
    const int action = atomic_load(&rt->action);
    return action ? rt_text(" before %c of micro-batch %d", action, atomic_load(&rt->micro)) : "";
}

/* Ends all ranks if one that it waits for does not answer.  If all answer, they wait too, and the rank that waits for
 * the silent one reports it; after a second time-out it reports in any case. */
static void complain(Rt *rt, RtUnderWay *x, double seconds)
{
    bool *awaited = rt_allocate(rt->ranks, sizeof *awaited), *answered = rt_allocate(rt->ranks, sizeof *answered);
    bool *silent = rt_allocate(rt->ranks, sizeof *silent), all_answer = true;
    find_awaited(rt, x, awaited);
    call_others(rt, x, awaited, answered);
    for (int rank = 0; rank < rt->ranks; rank++) {
        silent[rank] = awaited[rank] && !answered[rank];
        all_answer = all_answer && !silent[rank];
    }
    if (!rt->program->comm->is_done(x->exchange) && (x->has_called || !all_answer))
        rt_fail("%s has waited %.0f s%s in %s for %s, which %s: check whether it still runs; --timeout "
                "SECONDS waits longer",
                rt_comm_place(rt, rt->rank), seconds, rt_action_text(rt), rt_collective_text(rt, x->of),
                places_text(rt, all_answer ? awaited : silent),
                all_answer ? "answers, but waits for others" : "does not answer");
    x->has_called = true;
    free(awaited);
    free(answered);
    free(silent);
}

/* Time in which this rank itself was stopped does not count: it gives others time to answer. */
static void check_times(Rt *rt, double now)
{
    const double timeout = rt->waiting.timeout;
    const bool was_stopped = now - rt->waiting.looked > timeout / 2;
    for (RtUnderWay *x = rt->waiting.first; x; x = x->next) {
        if (was_stopped)
            x->begun = now;
        if (now - x->begun <= timeout)
            continue;
        complain(rt, x, now - x->begun);
        x->begun = now = rt_seconds();
    }
    rt->waiting.looked = now;
}

/* --- Waiting ------------------------------------------------------------------------------------- */

/* First looks often, if the computation waits: most messages come soon. */
void rt_messages_rest(Rt *rt)
{
    enum { EAGER = 256 };
    const double between_calls = 0.001;
    if (rt->waiting.turn++ < EAGER && rt->waiting.is_awaited)
        sched_yield();
    else
        rt->program->comm->sleep(rt->waiting.looked - rt->waiting.moved);
    const double now = rt_seconds();
    if (now - rt->waiting.looked < between_calls)
        return;
    rt->program->comm->listen();
    check_times(rt, now);
}

void rt_exchange_messages(Rt *rt, const RtGroup *group, const RtCollective *of, const RtMessage to[],
                          const RtMessage from[])
{
    RtUnderWay *x = rt_messages_start(rt, group, of, to, from);
    while (!rt_messages_are_done(rt, x)) {
        if (rt->waiting.meanwhile)
            rt->waiting.meanwhile(rt);
        rt_messages_rest(rt);
    }
}
