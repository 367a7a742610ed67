/* collective.c -- runs collectives: synchronously, or in the background until a wait.
 *
 * One thread runs what has been started, in the order of starts: collectives one after the other, and messages between
 * two ranks beside them and beside each other, in both directions.  All ranks run the same program.  If it is free of
 * deadlock where each message blocks both ranks, so is this: a message waits only for others from the same rank to the
 * same rank, and for collectives of which both are members. */
#include "device.h"
#include "mesh/comm.h"
#include "mesh/workspace.h"
#include "trainer/trace.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pthread.h>

typedef enum { IDLE, STARTED, DONE } State;

typedef struct {
    State state;
    const void **in;
    void **out;
    int64_t started;     /* runs so far */
    double begun, ended; /* of the last run */
} Entry;

typedef struct Job {
    struct Job *next;
    int id, member; /* of a send: the other side */
    int64_t number; /* of the runs of its collective */
    const void *sent;
    void *received;
    double *times;         /* of a send that is traced: where its begin and end go; NULL: nowhere */
    RtUnderWay *under_way; /* of a send, from `begun` on */
    double begun;
} Job;

struct RtCollectives {
    Rt *rt;
    Entry *entry;      /* of each collective of the program */
    Job *first, *last; /* not done, in the order of starts; only the thread takes them away */
    bool is_closing;
    char *workspace;
    int64_t workspace_bytes;
    pthread_t thread;
    pthread_mutex_t lock; /* protects all fields but rt and workspace */
    pthread_cond_t changed;
};

/* --- The list of jobs ---------------------------------------------------------------------------- */

static const RtCollective *collective_of(const struct RtCollectives *c, const Job *job)
{
    return &c->rt->program->collectives[job->id];
}

static bool is_message(const struct RtCollectives *c, const Job *job) { return collective_of(c, job)->kind == RT_SEND; }

static Job *first_job(struct RtCollectives *c)
{
    pthread_mutex_lock(&c->lock);
    Job *job = c->first;
    pthread_mutex_unlock(&c->lock);
    return job;
}

static Job *next_job(struct RtCollectives *c, const Job *job)
{
    pthread_mutex_lock(&c->lock);
    Job *next = job->next;
    pthread_mutex_unlock(&c->lock);
    return next;
}

static void end_job(struct RtCollectives *c, Job *job)
{
    Job *before = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->first != job)
        for (before = c->first; before->next != job;)
            before = before->next;
    *(before ? &before->next : &c->first) = job->next;
    c->last = job == c->last ? before : c->last;
    c->entry[job->id].state = DONE;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    free(job);
}

static int64_t add_job(struct RtCollectives *c, Job job)
{
    Job *added = rt_allocate(1, sizeof *added);
    pthread_mutex_lock(&c->lock);
    const bool is_first = !c->first;
    *added = job;
    const int64_t number = added->number = c->entry[job.id].started++;
    *(is_first ? &c->first : &c->last->next) = added;
    c->last = added;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (!is_first && c->rt->program->comm->wake)
        c->rt->program->comm->wake();
    return number;
}

/* --- The thread ---------------------------------------------------------------------------------- */

static void run_collective(struct RtCollectives *c, int id)
{
    Entry *entry = &c->entry[id];
    RtTraffic *traffic = &c->rt->traffic[id];
    const RtCollective *collective = &c->rt->program->collectives[id];
    entry->begun = rt_seconds();
    traffic->sent_bytes += rt_exchange(c->rt, collective, entry->in, entry->out, c->workspace);
    traffic->calls++;
    entry->ended = rt_seconds();
    traffic->seconds += entry->ended - entry->begun;
}

static bool is_member(const RtGroup *group, int rank)
{
    for (int q = 0; q < group->count; q++)
        if (group->rank[q] == rank)
            return true;
    return false;
}

/* For an earlier collective, whose messages to or from the same rank would otherwise come behind its own. */
static bool has_to_wait(const struct RtCollectives *c, const Job *job)
{
    const int other = rt_comm_group(c->rt, collective_of(c, job))->rank[job->member];
    for (const Job *before = c->first; before != job; before = before->next)
        if (!is_message(c, before) && is_member(rt_comm_group(c->rt, collective_of(c, before)), other))
            return true;
    return false;
}

static void end_message(struct RtCollectives *c, Job *job)
{
    RtTraffic *traffic = &c->rt->traffic[job->id];
    const double now = rt_seconds();
    traffic->calls++;
    traffic->seconds += now - job->begun;
    traffic->sent_bytes += job->sent ? rt_message_bytes(collective_of(c, job)) : 0;
    if (job->times) {
        job->times[0] = job->begun;
        job->times[1] = now;
    }
    end_job(c, job);
}

/* Starts those that need not wait, and ends those that are done. */
static void move_messages(Rt *rt)
{
    struct RtCollectives *c = rt->collectives;
    for (Job *job = first_job(c), *next; job; job = next) {
        next = next_job(c, job);
        if (!is_message(c, job) || (!job->under_way && has_to_wait(c, job)))
            continue;
        if (!job->under_way) {
            job->begun = rt_seconds();
            job->under_way = rt_exchange_with(rt, collective_of(c, job), job->member, job->sent, job->received);
        }
        if (rt_messages_are_done(rt, job->under_way))
            end_message(c, job);
    }
}

/* Without one, no message has to wait. */
static Job *first_collective(struct RtCollectives *c)
{
    Job *job = first_job(c);
    while (job && is_message(c, job))
        job = next_job(c, job);
    return job;
}

static void *run_jobs(void *argument)
{
    struct RtCollectives *c = argument;
    pthread_mutex_lock(&c->lock);
    while (!c->is_closing) {
        if (!c->first) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        move_messages(c->rt);
        Job *collective = first_collective(c);
        if (collective) {
            run_collective(c, collective->id);
            end_job(c, collective);
        } else if (first_job(c)) {
            rt_messages_rest(c->rt);
        }
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Records the wait of the computation, and the collective in the background. */
static void trace(Rt *rt, int id, double from, bool background)
{
    const Entry *entry = &rt->collectives->entry[id];
    int kernel = rt->program->nkernels + id;
    if (!rt_tracing)
        return;
    rt_trace_span(rt, kernel, false, from, rt_seconds());
    if (background)
        rt_trace_span(rt, kernel, true, entry->begun, entry->ended);
}

/* --- Interface for generated code ----------------------------------------------------------------- */

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
    begin(rt, id, in, out)->state = STARTED;
    add_job(c, (Job){ .id = id });
}

void rt_collective_wait(Rt *rt, int id)
{
    struct RtCollectives *c = rt->collectives;
    double from = rt_seconds();
    pthread_mutex_lock(&c->lock);
    rt->waiting.is_awaited = true;
    while (c->entry[id].state == STARTED)
        pthread_cond_wait(&c->changed, &c->lock);
    rt->waiting.is_awaited = false;
    c->entry[id].state = IDLE;
    pthread_mutex_unlock(&c->lock);
    rt->traffic[id].waited += rt_seconds() - from;
    trace(rt, id, from, true);
}

/* If nothing runs in the background, the caller's thread runs it. */
void rt_collective(Rt *rt, int id, const void *const in[], void *const out[])
{
    struct RtCollectives *c = rt->collectives;
    pthread_mutex_lock(&c->lock);
    const bool is_idle = !c->first;
    pthread_mutex_unlock(&c->lock);
    if (!is_idle) {
        rt_collective_start(rt, id, in, out);
        rt_collective_wait(rt, id);
        return;
    }
    double from = rt_seconds();
    rt->waiting.is_awaited = true;
    begin(rt, id, in, out);
    run_collective(c, id);
    rt->waiting.is_awaited = false;
    rt->traffic[id].waited += rt_seconds() - from;
    trace(rt, id, from, false);
}

static int64_t start_message(Rt *rt, Job job)
{
    const int64_t number = rt->collectives->entry[job.id].started;
    if (rt_tracing)
        job.times = rt_trace_message(rt, job.id, number, job.member, job.sent != NULL);
    return add_job(rt->collectives, job);
}

/* The coordinate on its only axis is the number of a member of its group. */
int64_t rt_send_start(Rt *rt, int id, int to, const void *data)
{
    return start_message(rt, (Job){ .id = id, .member = to, .sent = data });
}

int64_t rt_receive_start(Rt *rt, int id, int from, void *data)
{
    return start_message(rt, (Job){ .id = id, .member = from, .received = data });
}

static bool is_listed(const struct RtCollectives *c, int id, int64_t number)
{
    for (const Job *job = c->first; job; job = job->next)
        if (job->id == id && job->number == number)
            return true;
    return false;
}

void rt_message_wait(Rt *rt, int id, int64_t number)
{
    struct RtCollectives *c = rt->collectives;
    double from = rt_seconds();
    pthread_mutex_lock(&c->lock);
    rt->waiting.is_awaited = true;
    while (is_listed(c, id, number))
        pthread_cond_wait(&c->changed, &c->lock);
    rt->waiting.is_awaited = false;
    pthread_mutex_unlock(&c->lock);
    const double until = rt_seconds();
    rt->traffic[id].waited += until - from;
    if (rt_tracing)
        rt_trace_message_wait(rt, id, number, from, until);
}

void rt_send(Rt *rt, int id, int to, const void *data) { rt_message_wait(rt, id, rt_send_start(rt, id, to, data)); }

void rt_receive(Rt *rt, int id, int from, void *data) { rt_message_wait(rt, id, rt_receive_start(rt, id, from, data)); }

/* --- Start, end -------------------------------------------------------------------------- */

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

void rt_collectives_open(Rt *rt)
{
    const RtProgram *program = rt->program;
    if (!program->comm)
        return;
    struct RtCollectives *c = rt->collectives = rt_allocate(1, sizeof *c);
    c->rt = rt;
    c->workspace_bytes = workspace_of(rt);
    c->workspace = rt_allocate(c->workspace_bytes, 1);
    c->entry = rt_allocate(program->ncollectives, sizeof *c->entry);
    for (int i = 0; i < program->ncollectives; i++) {
        c->entry[i].in = rt_allocate(program->collectives[i].npieces, sizeof *c->entry[i].in);
        c->entry[i].out = rt_allocate(program->collectives[i].npieces, sizeof *c->entry[i].out);
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    rt->waiting.meanwhile = move_messages;
    if (pthread_create(&c->thread, NULL, run_jobs, c))
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
    rt->waiting.meanwhile = NULL;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    for (int i = 0; i < rt->program->ncollectives; i++) {
        free(c->entry[i].in);
        free(c->entry[i].out);
    }
    free(c->entry);
    free(c->workspace);
    free(c);
    rt->collectives = NULL;
}

int64_t rt_collectives_workspace_bytes(const Rt *rt) { return rt->collectives ? rt->collectives->workspace_bytes : 0; }

char *rt_collectives_taken(const Rt *rt) { return NULL; }
