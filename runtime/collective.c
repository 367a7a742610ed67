/* collective.c -- runs collectives: at once, or started in the background and waited for later.
 *
 * One thread runs started collectives one after the other, in the order in which they were started.  All ranks run the
 * same program and so start them in the same order: two groups cannot wait for each other in a ring.  While it waits
 * for messages it sleeps more than it looks, since the cores are the computation's. */
#include "comm.h"
#include "trace.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pthread.h>

typedef enum { IDLE, STARTED, DONE } Stage;

typedef struct {
    Stage stage;
    const void **in;
    void **out;
    double begun, ended; /* the last time */
    RtTraffic traffic;
} Entry;

struct RtCollectives {
    Rt *rt;
    Entry *entry; /* of each collective of the program */
    int *queue;   /* ids, a ring with room for all */
    int first, count;
    bool is_closing;
    atomic_bool is_awaited;
    const RtCollective *now; /* what the messages at hand are of; NULL: a meeting between steps */
    char *workspace;
    int64_t workspace_bytes;
    double timeout;
    pthread_t thread;
    pthread_mutex_t lock; /* of all but rt, workspace and timeout */
    pthread_cond_t changed;
};

/* --- Waiting for messages ------------------------------------------------------------------------ */

static const char *name_of_kind(RtCollectiveKind kind)
{
    static const char *const names[] = { "all_reduce", "all_gather", "reduce_scatter", "all_to_all" };
    return names[kind];
}

static char *axes_text(const Rt *rt, const RtCollective *c)
{
    char *text = rt_text("%s", "");
    for (int i = 0; i < c->naxes; i++) {
        char *longer = rt_text("%s%s%s", text, i ? ", " : "", rt->program->axes[c->axis[i]].name);
        free(text);
        text = longer;
    }
    return text;
}

static char *description_of(const Rt *rt, const RtCollective *c)
{
    return c ? rt_text("%s over %s at '%s' (%s; %s)", name_of_kind(c->kind), axes_text(rt, c), c->name, c->where,
                       c->cause)
             : rt_text("the meeting of all ranks between two steps");
}

/* Calls the ranks that it waits for, and listens for a while; less if the messages come after all, since others would
 * wait for this rank then. */
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

/* Those that it waits for: who has sent nothing or, if all have sent, who has not taken its messages. */
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

/* Past the time-out: ends all ranks if one that it waits for does not answer.  If all answer, they wait, too, and
 * whoever waits for the silent one has the word; but the second time it speaks in any case. */
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
        rt_fail("%s waits since %.0f s in %s for %s, which %s: look whether it still runs, and at what; --timeout "
                "SECONDS waits longer",
                rt_comm_place(rt, rt->rank), seconds, description_of(rt, rt->collectives->now),
                places_text(rt, all_answer ? awaited : silent),
                all_answer ? "answers, but waits for others" : "does not answer");
    free(awaited);
    free(answered);
    free(silent);
}

/* Gives the core to others; longer where the computation goes on meanwhile, or where it takes long anyway. */
static void rest(const struct RtCollectives *c, int turn)
{
    enum { EAGER = 256 };
    if (turn % 16 < 15 || (c->is_awaited && turn < EAGER))
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

void rt_exchange_messages(Rt *rt, const RtGroup *group, const RtMessage to[], const RtMessage from[])
{
    const double between_calls = 0.001;
    const RtComm *comm = rt->program->comm;
    double begin = rt_seconds(), last = begin, listened = begin, timeout = rt->collectives->timeout;
    bool has_called = false;
    comm->start(group->channel, group->count, to, from);
    for (int turn = 0; !comm->is_done(group->channel); turn++) {
        rest(rt->collectives, turn);
        double now = rt_seconds();
        if (now - last > timeout / 2) /* this rank itself was stopped, and others have had no time to answer */
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

/* --- The thread ---------------------------------------------------------------------------------- */

static void run(struct RtCollectives *c, int id)
{
    Entry *entry = &c->entry[id];
    entry->begun = rt_seconds();
    c->now = &c->rt->program->collectives[id];
    entry->traffic.sent_bytes += rt_exchange(c->rt, c->now, entry->in, entry->out, c->workspace);
    c->now = NULL;
    entry->traffic.calls++;
    entry->ended = rt_seconds();
    entry->traffic.seconds += entry->ended - entry->begun;
}

static void *run_queue(void *argument)
{
    struct RtCollectives *c = argument;
    pthread_mutex_lock(&c->lock);
    while (!c->is_closing) {
        if (c->count == 0) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        int id = c->queue[c->first];
        pthread_mutex_unlock(&c->lock);
        run(c, id);
        pthread_mutex_lock(&c->lock);
        c->first = (c->first + 1) % c->rt->program->ncollectives;
        c->count--;
        c->entry[id].stage = DONE;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* The wait of the computation, and what went on behind it. */
static void trace(Rt *rt, int id, double from, bool background)
{
    const Entry *entry = &rt->collectives->entry[id];
    int kernel = rt->program->nkernels + id;
    if (!rt_tracing)
        return;
    rt_trace_span(rt, kernel, 0, from, rt_seconds());
    if (background)
        rt_trace_span(rt, kernel, 1, entry->begun, entry->ended);
}

/* --- What generated code calls -------------------------------------------------------------------- */

static Entry *begin(Rt *rt, int id, const void *const in[], void *const out[])
{
    Entry *entry = &rt->collectives->entry[id];
    size_t bytes = (size_t)rt->program->collectives[id].npieces * sizeof *in;
    memcpy(entry->in, in, bytes);
    memcpy(entry->out, out, bytes);
    return entry;
}

void rt_collective_start(Rt *rt, int id, const void *const in[], void *const out[])
{
    struct RtCollectives *c = rt->collectives;
    begin(rt, id, in, out)->stage = STARTED;
    pthread_mutex_lock(&c->lock);
    c->queue[(c->first + c->count++) % rt->program->ncollectives] = id;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void rt_collective_wait(Rt *rt, int id)
{
    struct RtCollectives *c = rt->collectives;
    double from = rt_seconds();
    pthread_mutex_lock(&c->lock);
    c->is_awaited = true;
    while (c->entry[id].stage == STARTED)
        pthread_cond_wait(&c->changed, &c->lock);
    c->is_awaited = false;
    c->entry[id].stage = IDLE;
    pthread_mutex_unlock(&c->lock);
    c->entry[id].traffic.waited += rt_seconds() - from;
    trace(rt, id, from, true);
}

/* Where nothing runs in the background, the caller's thread does it. */
void rt_collective(Rt *rt, int id, const void *const in[], void *const out[])
{
    struct RtCollectives *c = rt->collectives;
    pthread_mutex_lock(&c->lock);
    bool is_idle = c->count == 0;
    pthread_mutex_unlock(&c->lock);
    if (!is_idle) {
        rt_collective_start(rt, id, in, out);
        rt_collective_wait(rt, id);
        return;
    }
    double from = rt_seconds();
    c->is_awaited = true;
    Entry *entry = begin(rt, id, in, out);
    run(c, id);
    c->is_awaited = false;
    entry->traffic.waited += rt_seconds() - from;
    trace(rt, id, from, false);
}

/* --- Start, end, accounts -------------------------------------------------------------------------- */

static int64_t workspace_of(const Rt *rt)
{
    int64_t most = 0;
    for (int i = 0; i < rt->program->ncollectives; i++) {
        const RtCollective *c = &rt->program->collectives[i];
        int64_t bytes = rt_exchange_workspace(c, rt_comm_group(rt, c)->count);
        most = bytes > most ? bytes : most;
    }
    return most;
}

void rt_collectives_open(Rt *rt, double timeout)
{
    const RtProgram *program = rt->program;
    if (!program->comm)
        return;
    struct RtCollectives *c = rt->collectives = rt_allocate(1, sizeof *c);
    c->rt = rt;
    c->timeout = timeout;
    c->is_awaited = true;
    c->workspace_bytes = workspace_of(rt);
    c->workspace = rt_allocate(c->workspace_bytes, 1);
    c->queue = rt_allocate(program->ncollectives, sizeof *c->queue);
    c->entry = rt_allocate(program->ncollectives, sizeof *c->entry);
    for (int i = 0; i < program->ncollectives; i++) {
        c->entry[i].in = rt_allocate(program->collectives[i].npieces, sizeof *c->entry[i].in);
        c->entry[i].out = rt_allocate(program->collectives[i].npieces, sizeof *c->entry[i].out);
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    if (pthread_create(&c->thread, NULL, run_queue, c))
        rt_fail("cannot start the thread that runs collectives: too many threads or too little memory");
}

void rt_collectives_close(Rt *rt)
{
    struct RtCollectives *c = rt->collectives;
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->is_closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    for (int i = 0; i < rt->program->ncollectives; i++) {
        free(c->entry[i].in);
        free(c->entry[i].out);
    }
    free(c->entry);
    free(c->queue);
    free(c->workspace);
    free(c);
    rt->collectives = NULL;
}

int64_t rt_collectives_workspace_bytes(const Rt *rt) { return rt->collectives ? rt->collectives->workspace_bytes : 0; }

RtTraffic rt_collectives_traffic(const Rt *rt)
{
    RtTraffic sum = { 0 };
    for (int i = 0; rt->collectives && i < rt->program->ncollectives; i++) {
        const RtTraffic *t = &rt->collectives->entry[i].traffic;
        sum.calls += t->calls;
        sum.sent_bytes += t->sent_bytes;
        sum.seconds += t->seconds;
        sum.waited += t->waited;
    }
    return sum;
}

void rt_collectives_print(const Rt *rt)
{
    printf("%-14s %-10s %8s %14s %10s %10s  %s\n", "collective", "over", "calls", "bytes sent", "seconds", "waited",
           "of");
    for (int i = 0; rt->collectives && i < rt->program->ncollectives; i++) {
        const RtCollective *c = &rt->program->collectives[i];
        const RtTraffic *t = &rt->collectives->entry[i].traffic;
        char *axes = axes_text(rt, c);
        printf("%-14s %-10s %8lld %14lld %10.4f %10.4f  %s (%s; %s)\n", name_of_kind(c->kind), axes,
               (long long)t->calls, (long long)t->sent_bytes, t->seconds, t->waited, c->name, c->where, c->cause);
        free(axes);
    }
}
