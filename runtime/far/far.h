/* far.h -- memory beyond the device's: the tensors whose addresses in the plan are behind the arena.
 *
 * On a processor they are in a file (disk.h), on a GPU in memory of the host.  Offsets are those of the plan, from
 * RtProgram.far_begin on. */
#ifndef MPC_RUNTIME_FAR_H
#define MPC_RUNTIME_FAR_H

#include "state.h"

struct RtDisk;      /* disk.c */
struct RtTransfers; /* fetch.c of the device: what has been started */

struct RtFar {
    struct RtDisk *disk; /* NULL: they are in ... */
    char *memory;        /* ... memory of the host */
    struct RtTransfers *transfers;
    double waited; /* seconds in which the computation waited for the disk */
    int64_t moved; /* bytes, both ways */
};

static inline bool rt_is_far(const Rt *rt, int64_t offset)
{
    return rt->program->far_bytes && offset >= rt->program->far_begin;
}

/* Of what is in memory of the host. */
static inline char *rt_far_memory(const Rt *rt, int64_t offset)
{
    return rt->far->memory + (offset - rt->program->far_begin);
}

/* fetch.c of the device: room for all; `folder`: for a file, NULL for the default.  Ends the trainer if there is none.
 */
void rt_far_open(Rt *rt, const char *folder);
void rt_far_close(Rt *rt);
int64_t rt_far_workspace_bytes(const Rt *rt);

/* Of this rank. */
typedef struct {
    int64_t moved; /* bytes, both ways; -1: nothing is offloaded */
    double waited; /* seconds in which the computation waited for them; on a GPU NAN */
} RtFarTraffic;

RtFarTraffic rt_far_traffic(const Rt *rt); /* since the start */

/* At the end of a run: how much its steps moved, and how long of their `seconds` the computation waited for the disk.
 */
void rt_far_note(const Rt *rt, RtFarTraffic steps, double seconds);

#endif
