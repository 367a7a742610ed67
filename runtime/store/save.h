/* save.h -- writes checkpoints beside training: tensors are copied while the next step does not change them yet, and a
 * thread writes them.
 *
 * Ranks write one file together.  They exchange messages between steps only, never beside them: where one step has
 * ended, they find out whether all have written their parts, and later whether the first has replaced the file. */
#ifndef MPC_RUNTIME_SAVE_H
#define MPC_RUNTIME_SAVE_H

#include "keep.h"
#include "lock.h"
#include "place.h"
#include "rt.h"

typedef struct RtSaving RtSaving; /* all saves of a run */

/* Replaces the file at `path`, whose lock the first rank holds.  `beside`: with memory for a copy; where a rank may not
 * use so much, a note says that all stop to write.  `files`: about how many, if `path` is an index (weights.h).  All
 * ranks call it. */
RtSaving *rt_saving_open(const char *path, Rt *rt, RtLock *lock, bool beside, int files);
void rt_saving_close(RtSaving *saving);

/* Bytes of tensors: of a checkpoint, and the most in one file. */
int64_t rt_saving_bytes(const RtSaving *saving);
int64_t rt_saving_most(const RtSaving *saving);

/* Second names of a checkpoint, given by the first rank. */
typedef struct {
    RtKeep *keep;     /* of --keep; NULL: none */
    const char *best; /* of --keep-best; NULL: none */
} RtNames;

/* Begins a save.  No other is under way.  True: training may go on beside it;
 * false: it has written this rank's parts, since `beside` is false, or there is no memory for a copy. */
bool rt_saving_start(RtSaving *saving, const RtPlace *place, RtNames names, bool beside);

bool rt_saving_is_under_way(const RtSaving *saving); /* on all ranks, or none */

/* All ranks call it, between two steps.  True: the save is complete, which was begun last.  `wait`: until then.  Ends
 * the trainer, with the file there before, if a rank could not write; the first rank then reports it. */
bool rt_saving_advance(RtSaving *saving, bool wait);

/* Of the last complete save: its step; the name that --keep gave it; "": without --keep; NULL: a file that is not the
 * run's has that name; and its name as the best one, NULL: it has none. */
int64_t rt_saving_step(const RtSaving *saving);
const char *rt_saving_kept(const RtSaving *saving);
const char *rt_saving_best(const RtSaving *saving);

#endif
