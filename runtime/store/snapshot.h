/* snapshot.h -- the bytes of the arena that belong to a set of tensors, and a copy of them in host memory. */
#ifndef MPC_RUNTIME_SNAPSHOT_H
#define MPC_RUNTIME_SNAPSHOT_H

#include "device.h"
#include "tensors.h"

typedef struct {
    int count;
    RtSpan *span; /* by offset, with none in another: neighbours are one */
    int64_t bytes;
    char *memory;       /* NULL: there is no room for it */
    atomic_int *needed; /* for each RT_COPY_CHUNK bytes: by how many views that have not been dropped */
    bool is_held;
} RtSnapshot;

/* Of those of the views that `takes`. */
RtSnapshot rt_snapshot_open(Rt *rt, const RtView *views, int count, bool (*takes)(const Rt *rt, const RtView *view));
void rt_snapshot_close(RtSnapshot *snapshot, Rt *rt);

/* Copies them, beside what the device computes.  True: they can be read at once; else after rt_copy_wait. */
bool rt_snapshot_start(RtSnapshot *snapshot, Rt *rt, const RtView *views, int count,
                       bool (*takes)(const Rt *rt, const RtView *view));

/* The window of a view that it took, for one reader, who releases it soon.  False: what was read may be of two steps;
 * it is to be read again. */
const char *rt_snapshot_hold(RtSnapshot *snapshot, Rt *rt, const RtView *view);
bool rt_snapshot_release(RtSnapshot *snapshot, Rt *rt);

/* The view has been read whole: it need not be copied. */
void rt_snapshot_drop(RtSnapshot *snapshot, const RtView *view);

#endif
