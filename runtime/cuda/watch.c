/* watch.c -- notices collectives that hang.
 *
 * The GPU counts, for each collective, how often it has begun and how often it is done: a kernel shows the counts in
 * memory of the host (progress.cuh), where a thread reads them.  So the thread calls nothing of CUDA, which may block:
 * a graph is not launched while the queue of launches is full, and behind a collective that hangs the queue stays full.
 * Counts are known within graphs, too, of which the processor observes only begin and end.
 *
 * Before a trainer with communicators ends by an error, they are aborted: kernels of NCCL that wait for other ranks
 * would keep CUDA, and so the process, from ending. */
#include "nccl.h"

#include "mesh/comm.h"
#include "message.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PER_SECOND = 4, SECONDS_TO_ABORT = 10 };

struct RtGpuWatch {
    pthread_t thread;
    pthread_mutex_t lock; /* held while the thread looks */
    pthread_cond_t wakes;
    bool ends;
    _Atomic double begun;          /* time when the function that runs began; 0: none runs */
    RtGpuProgress *counts;         /* in the GPU's memory */
    volatile RtGpuProgress *shown; /* pinned memory of the host */
    RtGpuProgress *seen;           /* as they were at the last look ... */
    double changed;                /* ... and the time of the last change */
    cudaKernel_t kernel;
};

/* --- Counts ----------------------------------------------------------------------------------------- */

RtGpuCount rt_gpu_count(const Rt *rt, int id, bool is_done)
{
    const struct RtGpuWatch *w = rt->gpu->collectives->watch;
    return is_done ? (RtGpuCount){ &w->counts[id].done, (unsigned char *)&w->shown[id].done }
                   : (RtGpuCount){ &w->counts[id].begun, (unsigned char *)&w->shown[id].begun };
}

void rt_gpu_note(Rt *rt, RtGpuCount count, cudaStream_t stream)
{
    void *arguments[] = { &count.at, &count.shown };
    rt_gpu_check(rt,
                 cudaLaunchKernel((const void *)rt->gpu->collectives->watch->kernel, (dim3){ 1, 1, 1 },
                                  (dim3){ 1, 1, 1 }, arguments, 0, stream),
                 "note progress");
}

/* The first collective that has begun and is not done, or NULL; after a look at all counts. */
static const RtCollective *look(const Rt *rt, struct RtGpuWatch *w)
{
    const RtCollective *under_way = NULL;
    for (int i = 0; i < rt->program->ncollectives; i++) {
        const RtGpuProgress now = { w->shown[i].begun, w->shown[i].done };
        if (now.begun != w->seen[i].begun || now.done != w->seen[i].done)
            w->changed = rt_seconds();
        w->seen[i] = now;
        under_way = !under_way && now.begun != now.done ? &rt->program->collectives[i] : under_way;
    }
    return under_way;
}

/* --- The thread ------------------------------------------------------------------------------------- */

/* What NCCL says has failed, or NULL; owned by the caller. */
static char *error_of_nccl(const Rt *rt, struct RtGpuWatch *w)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    for (int i = 0; i < c->nchannels; i++) {
        ncclResult_t status = ncclSuccess, asked = c->ncclCommGetAsyncError(c->channel[i].comm, &status);
        status = asked != ncclSuccess ? asked : status;
        if (status == ncclSuccess || status == ncclInProgress)
            continue;
        const RtCollective *at = look(rt, w);
        return rt_nccl_error(rt, &c->channel[i], at ? rt_collective_text(rt, at) : "go on", status);
    }
    return NULL;
}

/* After the time-out without progress, or NULL. */
static char *complaint(const Rt *rt, struct RtGpuWatch *w, double begun)
{
    const RtCollective *at = look(rt, w);
    const double waited = rt_seconds() - (w->changed > begun ? w->changed : begun);
    return waited <= rt->waiting.timeout
               ? NULL
               : rt_text("%s has waited %.0f s%s%s%s: check whether the other ranks still run; --timeout SECONDS waits "
                         "longer",
                         rt_comm_place(rt, rt->rank), waited, rt_action_text(rt),
                         at ? " in " : " for its GPU, outside of collectives", at ? rt_collective_text(rt, at) : "");
}

static void rest(struct RtGpuWatch *w)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000000 / PER_SECOND;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->wakes, &w->lock, &until);
}

static void *watch(void *argument)
{
    const Rt *rt = argument;
    struct RtGpuWatch *w = rt->gpu->collectives->watch;
    pthread_mutex_lock(&w->lock);
    for (; !w->ends; rest(w)) {
        const double begun = atomic_load(&w->begun);
        char *text = begun > 0 ? error_of_nccl(rt, w) : NULL;
        text = begun > 0 && !text ? complaint(rt, w, begun) : text;
        if (!text)
            continue;
        pthread_mutex_unlock(&w->lock);
        rt_fail("%s", text);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void rt_gpu_watch_begin(Rt *rt)
{
    if (rt->gpu->collectives)
        atomic_store(&rt->gpu->collectives->watch->begun, rt_seconds());
}

void rt_gpu_watch_end(Rt *rt)
{
    if (rt->gpu->collectives)
        atomic_store(&rt->gpu->collectives->watch->begun, 0);
}

/* --- The end by an error ----------------------------------------------------------------------------- */

static const Rt *own; /* the process has one */

static void *end_anyway(void *status)
{
    sleep(SECONDS_TO_ABORT);
    _exit((int)(intptr_t)status);
}

static void stop_looking(struct RtGpuWatch *w)
{
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_signal(&w->wakes);
    pthread_mutex_unlock(&w->lock);
}

/* In any thread.  An abort waits for kernels that look for it, which a broken GPU may never do. */
static void abort_communicators(int status)
{
    const struct RtGpuCollectives *c = own->gpu ? own->gpu->collectives : NULL;
    pthread_t last_resort;
    if (!c || pthread_create(&last_resort, NULL, end_anyway, (void *)(intptr_t)status))
        return;
    if (c->watch)
        stop_looking(c->watch);
    for (int i = 0; i < c->nchannels; i++)
        if (c->channel[i].comm)
            c->ncclCommAbort(c->channel[i].comm);
}

/* --- Begin and end ----------------------------------------------------------------------------------- */

void rt_gpu_watch_open(Rt *rt)
{
    struct RtGpuWatch *w = rt->gpu->collectives->watch = rt_allocate(1, sizeof *w);
    const size_t bytes = (size_t)rt->program->ncollectives * sizeof *w->shown;
    void *shown;
    rt_gpu_check(rt, cudaHostAlloc(&shown, bytes, cudaHostAllocMapped), "pin memory for progress");
    memset(shown, 0, bytes);
    w->shown = shown;
    w->seen = rt_allocate(rt->program->ncollectives, sizeof *w->seen);
    w->counts = (RtGpuProgress *)rt->gpu->message_space;
    rt_gpu_check(rt, cudaMemsetAsync(w->counts, 0, bytes, rt->gpu->compute), "zero memory");
    w->kernel = rt_gpu_kernel(rt, "rt_progress");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wakes, NULL);
    own = rt;
    rt_before_error(abort_communicators);
}

void rt_gpu_watch_start(Rt *rt)
{
    struct RtGpuWatch *w = rt->gpu->collectives->watch;
    int status = pthread_create(&w->thread, NULL, watch, rt);
    if (status)
        rt_fail("cannot start a thread: %s", strerror(status));
}

void rt_gpu_watch_close(Rt *rt)
{
    struct RtGpuWatch *w = rt->gpu->collectives->watch;
    stop_looking(w);
    pthread_join(w->thread, NULL);
    rt_gpu_check(rt, cudaFreeHost((void *)w->shown), "free pinned memory");
    free(w->seen);
    free(w);
    rt->gpu->collectives->watch = NULL;
}
