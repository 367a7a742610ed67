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
    return snapshot;
}

void rt_snapshot_close(RtSnapshot *snapshot, Rt *rt)
{
    if (snapshot->memory)
        rt_copies_free(rt, snapshot->memory);
    free(snapshot->span);
    *snapshot = (RtSnapshot){ 0 };
}

const char *rt_snapshot_window(const RtSnapshot *snapshot, const RtView *view)
{
    const RtSpan *span = snapshot->span;
    while (span < snapshot->span + snapshot->count && span->offset + span->bytes <= view->offset)
        span++;
    assert(span < snapshot->span + snapshot->count && span->offset <= view->offset);
    return snapshot->memory + span->at + (view->offset - span->offset);
}
