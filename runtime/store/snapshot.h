/* snapshot.h -- the bytes of the arena that belong to a set of tensors, and a copy of them in host memory. */
#ifndef MPC_RUNTIME_SNAPSHOT_H
#define MPC_RUNTIME_SNAPSHOT_H

#include "device.h"
#include "tensors.h"

typedef struct {
    int count;
    RtSpan *span; /* by offset, with none in another: neighbours are one */
    int64_t bytes;
    char *memory; /* NULL: there is no room for it */
} RtSnapshot;

/* Of those of the views that `takes`. */
RtSnapshot rt_snapshot_open(Rt *rt, const RtView *views, int count, bool (*takes)(const Rt *rt, const RtView *view));
void rt_snapshot_close(RtSnapshot *snapshot, Rt *rt);

/* In the copy, a view that it took. */
const char *rt_snapshot_window(const RtSnapshot *snapshot, const RtView *view);

#endif
