/* collective.c -- runs collectives: synchronously, or in the background until a wait.
 *
 * One thread runs started collectives one after the other, in the order of starts.  All ranks run the same program and
 * start them in the same order, so groups cannot deadlock. */
#include "device.h"
#include "mesh/comm.h"
#include "mesh/workspace.h"
#include "trainer/trace.h"

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
    int64_t started, finished; /* runs so far */
    double begun, ended;       /* of the last run */
} Entry;

typedef struct {
    int id;
    int member; /* of a send: the other side */
    const void *sent;
    void *received;
    double *times; /* of a send that is traced: where its begin and end go; NULL: nowhere */
} Job;

struct RtCollectives {
    Rt *rt;
    Entry *entry; /* of each collective of the program */
    Job *queue;   /* a ring buffer */
    int first, count, room;
    bool is_closing;
    char *workspace;
    int64_t workspace_bytes;
    pthread_t thread;
    pthread_mutex_t lock; /* protects all fields but rt and workspace */
    pthread_cond_t changed;
};

/* --- The thread ---------------------------------------------------------------------------------- */

static void run(struct RtCollectives *c, const Job *job)
{
    Entry *entry = &c->entry[job->id];
    RtTraffic *traffic = &c->rt->traffic[job->id];
    const RtCollective *collective = &c->rt->program->collectives[job->id];
    entry->begun = rt_seconds();
    c->rt->waiting.of = collective;
    traffic->sent_bytes += collective->kind == RT_SEND
                               ? rt_exchange_with(c->rt, collective, job->member, job->sent, job->received)
                               : rt_exchange(c->rt, collective, entry->in, entry->out, c->workspace);
    c->rt->waiting.of = NULL;
    traffic->calls++;
    entry->ended = rt_seconds();
    traffic->seconds += entry->ended - entry->begun;
    if (job->times) {
        job->times[0] = entry->begun;
        job->times[1] = entry->ended;
    }
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
        const Job job = c->queue[c->first];
        pthread_mutex_unlock(&c->lock);
        run(c, &job);
        pthread_mutex_lock(&c->lock);
        c->first = (c->first + 1) % c->room;
        c->count--;
        c->entry[job.id].stage = DONE;
        c->entry[job.id].finished++;
        pthread_cond_broadcast(&c->changed);
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

/* Several messages of one send may be in the queue, so it grows. */
static int64_t add_job(struct RtCollectives *c, Job job)
{
    pthread_mutex_lock(&c->lock);
    if (c->count == c->room) {
        Job *grown = rt_allocate(2 * c->room, sizeof *grown);
        for (int i = 0; i < c->count; i++)
            grown[i] = c->queue[(c->first + i) % c->room];
        free(c->queue);
        c->queue = grown;
        c->first = 0;
        c->room *= 2;
    }
    c->queue[(c->first + c->count++) % c->room] = job;
    const int64_t number = c->entry[job.id].started++;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return number;
}

void rt_collective_start(Rt *rt, int id, const void *const in[], void *const out[])
{
    struct RtCollectives *c = rt->collectives;
    begin(rt, id, in, out)->stage = STARTED;
    add_job(c, (Job){ .id = id });
}

void rt_collective_wait(Rt *rt, int id)
{
    struct RtCollectives *c = rt->collectives;
    double from = rt_seconds();
    pthread_mutex_lock(&c->lock);
    rt->waiting.is_awaited = true;
    while (c->entry[id].stage == STARTED)
        pthread_cond_wait(&c->changed, &c->lock);
    rt->waiting.is_awaited = false;
    c->entry[id].stage = IDLE;
    pthread_mutex_unlock(&c->lock);
    rt->traffic[id].waited += rt_seconds() - from;
    trace(rt, id, from, true);
}

/* If nothing runs in the background, the caller's thread runs it. */
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
    rt->waiting.is_awaited = true;
    begin(rt, id, in, out);
    run(c, &(Job){ .id = id });
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

void rt_message_wait(Rt *rt, int id, int64_t number)
{
    struct RtCollectives *c = rt->collectives;
    double from = rt_seconds();
    pthread_mutex_lock(&c->lock);
    rt->waiting.is_awaited = true;
    while (c->entry[id].finished <= number)
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
    c->room = program->ncollectives + 1;
    c->queue = rt_allocate(c->room, sizeof *c->queue);
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

char *rt_collectives_taken(const Rt *rt) { return NULL; }
