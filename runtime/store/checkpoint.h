/* checkpoint.h -- a run on disk: all tensors of the program under their full names, and the progress of the run. */
#ifndef MPC_RUNTIME_CHECKPOINT_H
#define MPC_RUNTIME_CHECKPOINT_H

#include "lock.h"
#include "rt.h"

typedef struct {
    int64_t step;      /* steps done */
    int64_t position;  /* sequences read, over all epochs */
    int64_t sequences; /* sequences in the data; 0: no data read yet */
    bool shuffled;
    char weights[256]; /* of several --data: "0.7 0.3"; "": none */
    uint32_t seed;
} RtPlace;

int64_t rt_checkpoint_bytes(const Rt *rt); /* bytes of the tensors in a file */

/* Replaces the file as a whole or, ending the trainer, not at all.  All ranks call it and write their parts; the first
 * holds the lock of the path. */
void rt_checkpoint_save(const char *path, Rt *rt, const RtPlace *place, RtLock *lock);

/* How a file is read. */
typedef struct {
    bool weights_only; /* not the optimizer's state and the progress */
    bool init_missing; /* tensors that the file lacks stay as they are, unless it has no parameter of the model */
} RtLoading;

/* Fills the arena with this rank's parts.  True: `place` is set to the progress of that run.  False: only weights are
 * loaded; place and optimizer are unchanged.  Ends the trainer if a tensor is missing, unknown, of another shape or
 * type, or has a wrong checksum. */
bool rt_checkpoint_load(const char *path, Rt *rt, RtLoading how, RtPlace *place);

/* The same for the parameters of one instance, from the weights of a file whose names lack "INSTANCE.". */
void rt_checkpoint_load_part(const char *instance, const char *path, Rt *rt);

#endif
