/* checkpoint.h -- a run on disk: all tensors of the program under their full names, and the progress of the run.
 * save.h writes it. */
#ifndef MPC_RUNTIME_CHECKPOINT_H
#define MPC_RUNTIME_CHECKPOINT_H

#include "place.h"
#include "rt.h"

/* How a file is read. */
typedef struct {
    bool weights_only; /* not the optimizer's state and the progress */
    bool is_checked;   /* by rt_checkpoint_fault */
    bool init_missing; /* tensors that the file lacks stay as they are, unless it has no parameter of the model */
} RtLoading;

/* Fills the arena with this rank's parts.  True: `place` is set to the progress of that run.  False: only weights are
 * loaded; place and optimizer are unchanged.  Ends the trainer if a tensor is missing, unknown, of another shape or
 * type, or has a wrong checksum. */
bool rt_checkpoint_load(const char *path, Rt *rt, RtLoading how, RtPlace *place);

/* Why the file is not as it was saved: cut short, or other bytes; NULL: it is.  All ranks call it, and each reads a
 * share of the bytes.  The text is the caller's. */
char *rt_checkpoint_fault(const char *path, Rt *rt);

/* Loads the parameters of one instance alone, from the weights of a file whose names lack "INSTANCE.". */
void rt_checkpoint_load_part(const char *instance, const char *path, Rt *rt);

#endif
