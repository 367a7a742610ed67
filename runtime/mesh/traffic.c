/* traffic.c -- collectives on both devices: names, statistics, and waiting for messages.  A waiting rank mostly sleeps,
 * to leave the cores to the computation. */
#include "comm.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* --- Names -------------------------------------------------------------------------------------- */

static const char *name_of_kind(RtCollectiveKind kind)
{
    static const char *const names[] = { "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "rotate" };
    return names[kind];
}

char *rt_axes_text(const Rt *rt, int naxes, const int axis[])
{
    char *text = rt_text("%s", "");
    for (int i = 0; i < naxes; i++)
        rt_append(&text, "%s%s", i ? ", " : "", rt->program->axes[axis[i]].name);
    return text;
}

char *rt_collective_text(const Rt *rt, const RtCollective *c)
{
    return c ? rt_text("%s over %s at '%s' (%s; %s)", name_of_kind(c->kind), rt_axes_text(rt, c->naxes, c->axis),
                       c->name, c->where, c->cause)
             : rt_text("the barrier between two steps");
}

/* --- Waiting for messages ------------------------------------------------------------------------ */

/* Calls the ranks that it waits for, and listens for a while; stops if the messages arrive, since others may then wait
 * for this rank. */
static void call_others(const Rt *rt, const RtGroup *group, const bool *awaited, bool *answered)
{
    enum { SECONDS = 2 };
    const RtComm *comm = rt->program->comm;
    for (int rank = 0; rank < rt->ranks; rank++)
        if (awaited[rank])
            comm->call(rank);
    for (double begin = rt_seconds(); rt_seconds() - begin < SECONDS && !comm->is_done(group->channel);) {
        for (int rank; (rank = comm->listen()) >= 0;)
            answered[rank] = true;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

/* The ranks that it waits for: those that have sent nothing or, if all have sent, those that have not received its
 * messages. */
static void find_awaited(const Rt *rt, const RtGroup *group, bool *awaited)
{
    int count = 0;
    for (int q = 0; q < group->count; q++)
        count += awaited[group->rank[q]] = q != group->own && !rt->program->comm->has_come(group->channel, q);
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

/* After the time-out: ends all ranks if one that it waits for does not answer.  If all answer, they wait too, and the
 * rank that waits for the silent one reports it; after a second time-out it reports in any case. */
static void complain(Rt *rt, const RtGroup *group, double seconds, bool is_second)
{
    bool *awaited = rt_allocate(rt->ranks, sizeof *awaited), *answered = rt_allocate(rt->ranks, sizeof *answered);
    bool *silent = rt_allocate(rt->ranks, sizeof *silent), all_answer = true;
    find_awaited(rt, group, awaited);
    call_others(rt, group, awaited, answered);
    for (int rank = 0; rank < rt->ranks; rank++) {
        silent[rank] = awaited[rank] && !answered[rank];
        all_answer = all_answer && !silent[rank];
    }
    if (!rt->program->comm->is_done(group->channel) && (is_second || !all_answer))
        rt_fail("%s has waited %.0f s%s in %s for %s, which %s: check whether it still runs; --timeout "
                "SECONDS waits longer",
                rt_comm_place(rt, rt->rank), seconds, rt_action_text(rt), rt_collective_text(rt, rt->waiting.of),
                places_text(rt, all_answer ? awaited : silent),
                all_answer ? "answers, but waits for others" : "does not answer");
    free(awaited);
    free(answered);
    free(silent);
}

/* First looks often, if the computation waits: most messages come soon. */
static void rest(const Rt *rt, const RtGroup *group, int turn, double waited)
{
    enum { EAGER = 256 };
    if (turn < EAGER && rt->waiting.is_awaited)
        sched_yield();
    else
        rt->program->comm->sleep(group->channel, waited);
}

void rt_exchange_messages(Rt *rt, const RtGroup *group, const RtMessage to[], const RtMessage from[])
{
    const double between_calls = 0.001;
    const RtComm *comm = rt->program->comm;
    double begin = rt_seconds(), last = begin, listened = begin, timeout = rt->waiting.timeout;
    bool has_called = false;
    comm->start(group->channel, group->count, to, from);
    for (int turn = 0; !comm->is_done(group->channel); turn++) {
        rest(rt, group, turn, last - begin);
        double now = rt_seconds();
        if (now - last > timeout / 2) /* this rank itself was stopped: gives others time to answer */
            begin = now;
        last = now;
        if (now - listened < between_calls)
            continue;
        listened = now;
        comm->listen();
        if (now - begin > timeout) {
            complain(rt, group, now - begin, has_called);
            has_called = true;
            begin = last = rt_seconds();
        }
    }
}

/* --- Statistics ----------------------------------------------------------------------------------- */

void rt_traffic_open(Rt *rt, double timeout)
{
    rt->waiting.timeout = timeout;
    rt->waiting.is_awaited = true;
    rt->traffic = rt_allocate(rt->program->ncollectives, sizeof *rt->traffic);
}

void rt_traffic_close(Rt *rt)
{
    free(rt->traffic);
    rt->traffic = NULL;
}

RtTraffic rt_collectives_traffic(const Rt *rt)
{
    RtTraffic sum = { 0 };
    for (int i = 0; rt->traffic && i < rt->program->ncollectives; i++) {
        const RtTraffic *t = &rt->traffic[i];
        sum.calls += t->calls;
        sum.sent_bytes += t->sent_bytes;
        sum.seconds += t->seconds;
        sum.waited += t->waited;
    }
    return sum;
}

typedef struct {
    char text[16];
} Seconds;

static Seconds seconds_text(double seconds)
{
    Seconds s = { "-" };
    if (!isnan(seconds))
        snprintf(s.text, sizeof s.text, "%.4f", seconds);
    return s;
}

void rt_collectives_print(const Rt *rt)
{
    printf("%-14s %-10s %8s %14s %10s %10s  %s\n", "collective", "over", "calls", "bytes sent", "seconds", "waited",
           "of");
    for (int i = 0; rt->traffic && i < rt->program->ncollectives; i++) {
        const RtCollective *c = &rt->program->collectives[i];
        const RtTraffic *t = &rt->traffic[i];
        if (!t->calls) /* of a program that has not run, as that which predicts */
            continue;
        char *axes = rt_axes_text(rt, c->naxes, c->axis);
        printf("%-14s %-10s %8lld %14lld %10s %10s  %s (%s; %s)\n", name_of_kind(c->kind), axes, (long long)t->calls,
               (long long)t->sent_bytes, seconds_text(t->seconds).text, seconds_text(t->waited).text, c->name, c->where,
               c->cause);
        free(axes);
    }
}
