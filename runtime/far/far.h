/* far.h -- memory beyond the device's: the tensors whose addresses in the plan are behind the arena.
 *
 * They are in a file of the rank's own (disk.c), which has no name once it is open: it ends with the process, however
 * that ends.  Offsets are those of the plan, from RtProgram.far_begin on. */
#ifndef MPC_RUNTIME_FAR_H
#define MPC_RUNTIME_FAR_H

#include "space.h"
#include "state.h"

struct RtFar {
    int file;
    bool is_direct;               /* transfers bypass the system's cache */
    char *buffer[RT_FAR_BUFFERS]; /* for transfers, aligned: of fetches, of all others */
    double waited;                /* seconds in which the computation waited */
    int64_t moved;                /* bytes, both ways */
    struct RtFetches *fetches;    /* those that have been started: see the device's fetch.c */
};

bool rt_is_far(const Rt *rt, int64_t offset);

/* Makes the file in the folder, NULL for the default, with room for all.  Ends the trainer if that is not possible. */
void rt_far_open(Rt *rt, const char *folder);
void rt_far_close(Rt *rt);
int64_t rt_far_workspace_bytes(const Rt *rt);

/* Each call is of one thread at a time, but for those with `ahead`, of another one. */
void rt_far_read(const Rt *rt, void *to, int64_t offset, int64_t bytes, bool ahead);
void rt_far_write(const Rt *rt, int64_t offset, const void *from, int64_t bytes);
void rt_far_zero(const Rt *rt, int64_t offset, int64_t bytes);

/* Copies of far bytes, until closed. */
char *rt_far_window_open(const Rt *rt, int64_t offset, int64_t bytes);
void rt_far_window_close(const Rt *rt, char *window, int64_t offset, int64_t bytes, bool is_changed);

/* fetch.c of the device. */
void rt_fetches_open(Rt *rt);
void rt_fetches_close(Rt *rt);

#endif
