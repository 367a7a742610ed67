/* snapshot.c -- see snapshot.h. */
#include "snapshot.h"

#include <assert.h>
#include <stdlib.h>

static int compare_offsets(const void *a, const void *b)
{
    const RtSpan *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Those that overlap or touch become one. */
static int merge(RtSpan *span, int count)
{
    int merged = 0;
    qsort(span, (size_t)count, sizeof *span, compare_offsets);
    for (int i = 0; i < count; i++) {
        RtSpan *last = merged ? &span[merged - 1] : NULL;
        const int64_t end = span[i].offset + span[i].bytes;
        if (!last || last->offset + last->bytes < span[i].offset)
            span[merged++] = span[i];
        else if (last->offset + last->bytes < end)
            last->bytes = end - last->offset;
    }
    return merged;
}

RtSnapshot rt_snapshot_open(Rt *rt, const RtView *views, int count, bool (*takes)(const Rt *rt, const RtView *view))
{
    RtSnapshot snapshot = { .span = rt_allocate(count, sizeof *snapshot.span) };
    for (const RtView *view = views; view < views + count; view++)
        if (takes(rt, view))
            snapshot.span[snapshot.count++] = (RtSpan){ .offset = view->offset, .bytes = rt_view_bytes(view) };
    snapshot.count = merge(snapshot.span, snapshot.count);
    for (RtSpan *span = snapshot.span; span < snapshot.span + snapshot.count; span++) {
        span->at = snapshot.bytes;
        snapshot.bytes += span->bytes;
    }
    snapshot.memory = rt_copies_allocate(rt, snapshot.bytes);
    snapshot.needed = rt_allocate(snapshot.bytes / RT_COPY_CHUNK + 1, sizeof *snapshot.needed);
    return snapshot;
}

void rt_snapshot_close(RtSnapshot *snapshot, Rt *rt)
{
    if (snapshot->memory)
        rt_copies_free(rt, snapshot->memory);
    free(snapshot->span);
    free(snapshot->needed);
    *snapshot = (RtSnapshot){ 0 };
}

/* The byte of the copy that the view begins at. */
static int64_t place_of(const RtSnapshot *snapshot, const RtView *view)
{
    const RtSpan *span = snapshot->span;
    while (span < snapshot->span + snapshot->count && span->offset + span->bytes <= view->offset)
        span++;
    assert(span < snapshot->span + snapshot->count && span->offset <= view->offset);
    return span->at + (view->offset - span->offset);
}

static void count_readers(RtSnapshot *snapshot, const RtView *view, int more)
{
    const int64_t begin = place_of(snapshot, view), end = begin + rt_view_bytes(view);
    for (int64_t chunk = begin / RT_COPY_CHUNK; chunk * RT_COPY_CHUNK < end; chunk++)
        atomic_fetch_add(&snapshot->needed[chunk], more);
}

bool rt_snapshot_start(RtSnapshot *snapshot, Rt *rt, const RtView *views, int count,
                       bool (*takes)(const Rt *rt, const RtView *view))
{
    for (const RtView *view = views; view < views + count; view++)
        if (takes(rt, view))
            count_readers(snapshot, view, 1);
    return rt_copy_start(rt, snapshot->count, snapshot->span, snapshot->memory, snapshot->needed);
}

void rt_snapshot_drop(RtSnapshot *snapshot, const RtView *view) { count_readers(snapshot, view, -1); }

const char *rt_snapshot_hold(RtSnapshot *snapshot, Rt *rt, const RtView *view)
{
    snapshot->is_held = rt_copy_hold(rt, snapshot->memory);
    return snapshot->is_held ? rt->arena + view->offset : snapshot->memory + place_of(snapshot, view);
}

bool rt_snapshot_release(RtSnapshot *snapshot, Rt *rt) { return !snapshot->is_held || rt_copy_release(rt); }
