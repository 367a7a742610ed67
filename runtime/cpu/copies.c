/* copies.c -- copies of the arena, piece by piece: by a thread while processors are idle, and what that has left by all
 * of them, where the copy is waited for. */
#define _DEFAULT_SOURCE /* madvise */
#include "background.h"
#include "device.h"
#include "trainer/memory.h"

#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, PIECE = 4 << 20 };

struct RtCopies {
    const Rt *rt;
    int memories;
    int64_t bytes; /* of them */
    RtBackground background;
    bool is_under_way;
    int count; /* of the one under way */
    const RtSpan *span;
    char *to;
    int64_t total;
    atomic_llong next; /* byte of the copy */
    double waited;
};

/* --- Memory ------------------------------------------------------------------------------------- */

/* Touched now, so that a step does not wait for the system to find it. */
static void touch(char *memory, int64_t bytes)
{
#pragma omp parallel for
    for (int64_t at = 0; at < bytes; at += PIECE)
        memset(memory + at, 0, (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
}

char *rt_copies_allocate(Rt *rt, int64_t bytes)
{
    void *memory;
    if ((double)(rt_memory_bytes(rt) + bytes) > rt->share.memory ||
        posix_memalign(&memory, HUGE_PAGE, (size_t)(bytes + HUGE_PAGE)))
        return NULL;
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
    touch(memory, bytes);
    if (!rt->copies)
        rt->copies = rt_allocate(1, sizeof *rt->copies);
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
    free(rt->copies);
    rt->copies = NULL;
}

int64_t rt_copies_bytes(const Rt *rt) { return rt->copies ? rt->copies->bytes : 0; }

double rt_copies_waited(const Rt *rt) { return rt->copies ? rt->copies->waited : 0; }

/* --- Copying ------------------------------------------------------------------------------------ */

/* Of a piece of the copy, the part that lies in this span. */
static void copy_part(const struct RtCopies *c, const RtSpan *span, int64_t begin, int64_t end)
{
    const int64_t from = begin > span->at ? begin : span->at,
                  until = end < span->at + span->bytes ? end : span->at + span->bytes;
    if (from < until)
        memcpy(c->to + from, c->rt->arena + span->offset + (from - span->at), (size_t)(until - from));
}

static bool copy_piece(struct RtCopies *c)
{
    const int64_t begin = atomic_fetch_add(&c->next, PIECE);
    for (const RtSpan *span = c->span; begin < c->total && span < c->span + c->count; span++)
        copy_part(c, span, begin, begin + PIECE);
    return begin < c->total;
}

static void copy_pieces(void *of)
{
    while (copy_piece(of))
        continue;
}

void rt_copy_start(Rt *rt, int count, const RtSpan *span, char *to)
{
    struct RtCopies *c = rt->copies;
    rt_copy_wait(rt);
    c->count = count;
    c->span = span;
    c->to = to;
    c->total = count ? span[count - 1].at + span[count - 1].bytes : 0;
    c->next = 0;
    c->is_under_way = true;
    rt_background_start(&c->background, copy_pieces, c, "that copies what is saved");
}

void rt_copy_wait(Rt *rt)
{
    struct RtCopies *c = rt->copies;
    if (!c || !c->is_under_way)
        return;
#pragma omp parallel
    copy_pieces(c);
    rt_background_join(&c->background);
    c->is_under_way = false;
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
        for (int64_t at = 0; at < span->bytes; at += PIECE)
            memcpy(rt->arena + span->offset + at, from + span->at + at,
                   (size_t)(span->bytes - at < PIECE ? span->bytes - at : PIECE));
}
