/* copies.c -- copies of the arena.  A reader of a copy reads the arena itself until a step is about to change it; then
 * all processors copy what is still unread.  So bytes that are already on disk are never copied.
 *
 * A reader holds the arena for one part at a time.  A step that wants to change it keeps the reader from the next part,
 * but does not wait for a slow disk: then the reader is told that what it has read may be of two steps, and reads that
 * part again, from the copy. */
#define _DEFAULT_SOURCE /* madvise */
#include "device.h"
#include "trainer/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

struct RtCopies {
    const Rt *rt;
    int memories;
    int64_t bytes;        /* of them */
    pthread_mutex_t lock; /* of the four below, and of `to` */
    pthread_cond_t changed;
    bool is_under_way, is_being_made, is_held, is_stale; /* stale: what is held has changed */
    int count;                                           /* of the one under way */
    const RtSpan *span;
    char *to;
    int64_t total;
    const atomic_int *needed;
    double waited;
};

/* --- Memory ------------------------------------------------------------------------------------- */

/* Touched now, so that a step does not wait for the system to find it. */
static void touch(char *memory, int64_t bytes)
{
#pragma omp parallel for
    for (int64_t at = 0; at < bytes; at += RT_COPY_CHUNK)
        memset(memory + at, 0, (size_t)(bytes - at < RT_COPY_CHUNK ? bytes - at : RT_COPY_CHUNK));
}

static void open_lock(struct RtCopies *c)
{
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &by_clock);
    pthread_condattr_destroy(&by_clock);
    pthread_mutex_init(&c->lock, NULL);
}

char *rt_copies_allocate(Rt *rt, int64_t bytes)
{
    void *memory;
    if ((double)(rt_memory_bytes(rt) + bytes) > rt->share.memory ||
        posix_memalign(&memory, HUGE_PAGE, (size_t)(bytes + HUGE_PAGE)))
        return NULL;
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
    touch(memory, bytes);
    if (!rt->copies) {
        rt->copies = rt_allocate(1, sizeof *rt->copies);
        open_lock(rt->copies);
    }
    rt->copies->rt = rt;
    rt->copies->memories++;
    rt->copies->bytes += bytes;
    return memory;
}

void rt_copies_free(Rt *rt, char *memory)
{
    rt_copy_wait(rt);
    free(memory);
    if (--rt->copies->memories > 0)
        return;
    pthread_cond_destroy(&rt->copies->changed);
    pthread_mutex_destroy(&rt->copies->lock);
    free(rt->copies);
    rt->copies = NULL;
}

int64_t rt_copies_bytes(const Rt *rt) { return rt->copies ? rt->copies->bytes : 0; }

double rt_copies_waited(const Rt *rt) { return rt->copies ? rt->copies->waited : 0; }

/* --- Copying ------------------------------------------------------------------------------------ */

/* The part of a chunk of the copy that lies in this span. */
static void copy_part(const struct RtCopies *c, const RtSpan *span, int64_t begin, int64_t end)
{
    const int64_t from = begin > span->at ? begin : span->at,
                  until = end < span->at + span->bytes ? end : span->at + span->bytes;
    if (from < until)
        memcpy(c->to + from, c->rt->arena + span->offset + (from - span->at), (size_t)(until - from));
}

static void copy_needed(const struct RtCopies *c)
{
#pragma omp parallel for schedule(dynamic)
    for (int64_t begin = 0; begin < c->total; begin += RT_COPY_CHUNK)
        if (!c->needed || c->needed[begin / RT_COPY_CHUNK] > 0)
            for (const RtSpan *span = c->span; span < c->span + c->count; span++)
                copy_part(c, span, begin, begin + RT_COPY_CHUNK);
}

bool rt_copy_start(Rt *rt, int count, const RtSpan *span, char *to, const atomic_int *needed)
{
    struct RtCopies *c = rt->copies;
    rt_copy_wait(rt);
    c->count = count;
    c->span = span;
    c->total = count ? span[count - 1].at + span[count - 1].bytes : 0;
    c->needed = needed;
    pthread_mutex_lock(&c->lock);
    c->to = to;
    c->is_under_way = true;
    pthread_mutex_unlock(&c->lock);
    return true;
}

/* No reader holds the arena from here on, or it learns that this was too long. */
static void begin_making(struct RtCopies *c)
{
    enum { PATIENCE = 10 * 1000 * 1000, SECOND = 1000 * 1000 * 1000 }; /* nanoseconds */
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE;
    until.tv_sec += until.tv_nsec / SECOND;
    until.tv_nsec %= SECOND;
    pthread_mutex_lock(&c->lock);
    c->is_being_made = true;
    while (c->is_held && !c->is_stale)
        c->is_stale = pthread_cond_timedwait(&c->changed, &c->lock, &until) == ETIMEDOUT && c->is_held;
    pthread_mutex_unlock(&c->lock);
}

void rt_copy_wait(Rt *rt)
{
    struct RtCopies *c = rt->copies;
    if (!c || !c->is_under_way)
        return;
    begin_making(c);
    copy_needed(c);
    pthread_mutex_lock(&c->lock);
    c->is_under_way = c->is_being_made = false;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

bool rt_copy_hold(Rt *rt, const char *to)
{
    struct RtCopies *c = rt->copies;
    pthread_mutex_lock(&c->lock);
    while (c->is_being_made)
        pthread_cond_wait(&c->changed, &c->lock);
    const bool is_in_arena = c->is_held = c->is_under_way && c->to == to;
    pthread_mutex_unlock(&c->lock);
    return is_in_arena;
}

bool rt_copy_release(Rt *rt)
{
    struct RtCopies *c = rt->copies;
    pthread_mutex_lock(&c->lock);
    const bool is_good = !c->is_stale;
    c->is_held = c->is_stale = false;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return is_good;
}

void rt_state_changes(Rt *rt)
{
    const double begin = rt_seconds();
    if (!rt->copies || !rt->copies->is_under_way)
        return;
    rt_copy_wait(rt);
    rt->copies->waited += rt_seconds() - begin;
}

void rt_copy_back(Rt *rt, int count, const RtSpan *span, const char *from)
{
    rt_copy_wait(rt);
    for (; count > 0; count--, span++)
#pragma omp parallel for
        for (int64_t at = 0; at < span->bytes; at += RT_COPY_CHUNK)
            memcpy(rt->arena + span->offset + at, from + span->at + at,
                   (size_t)(span->bytes - at < RT_COPY_CHUNK ? span->bytes - at : RT_COPY_CHUNK));
}
