/* checkpoint.h -- a run on the disk: all tensors of the program under their full names, and the progress of the run. */
#ifndef MPC_RUNTIME_CHECKPOINT_H
#define MPC_RUNTIME_CHECKPOINT_H

#include "lock.h"
#include "rt.h"

typedef struct {
    int64_t step;      /* steps done */
    int64_t position;  /* sequences read, over all epochs */
    int64_t sequences; /* of the data that they were read from; 0: none were */
    bool shuffled;
    uint32_t seed;
} RtPlace;

int64_t rt_checkpoint_bytes(const Rt *rt); /* of the tensors in a file */

/* Replaces the file whole or, ending the trainer, not at all.  All ranks call it: each writes what it holds; the first
 * has the lock of the path. */
void rt_checkpoint_save(const char *path, Rt *rt, const RtPlace *place, RtLock *lock);

/* Fills the arena with this rank's parts.  True: `pad` is where that run stood.  False: the file holds weights alone;
 * place and optimizer are as they were.  Ends the trainer where a tensor is missing, unknown, of another shape or
 * type, or not what its checksum says. */
bool rt_checkpoint_load(const char *path, Rt *rt, RtPlace *place);

#endif
