/* keep.h -- second names of checkpoints, beside that of --save: --keep gives the newest periodic ones a name with their
 * step, --keep-best gives one to that of the lowest loss of an evaluation. */
#ifndef MPC_RUNTIME_KEEP_H
#define MPC_RUNTIME_KEEP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *path; /* of --save */
    char *target;     /* after links: the others are beside it */
    int64_t count;    /* that stay; 0: no --keep */
    int64_t written;  /* by this run */
    bool may_replace;
    struct RtKept *newest; /* a ring: checkpoint i is at i % count */
} RtKeep;

/* The steps that the run will save: every, 2 every, ... after `begun_at`, up to `last`. */
typedef struct {
    int64_t begun_at, every, last;
} RtSavedSteps;

/* Will a run with --save=path give the name of the file `other` to a checkpoint? */
bool rt_keep_needs(const char *path, const char *other, RtSavedSteps steps);

/* Ends the trainer if the file system has no hard links or, unless `may_replace`, if a name is taken that the run will
 * need. */
RtKeep rt_keep_open(const char *path, int64_t count, RtSavedSteps steps, bool may_replace);
void rt_keep_close(RtKeep *keep);

/* The newest ones that are there, of steps before it begins, are taken for this run's: it goes on with one that was
 * interrupted. */
void rt_keep_adopt(RtKeep *keep, RtSavedSteps steps);

/* The file at `path` has just been saved at this step: gives it a second name, then removes the oldest of more than
 * `count` if it is still the file that this run wrote.  Returns the new name, owned by the caller; NULL if a file that
 * is not the run's has it, which stays. */
char *rt_keep_add(RtKeep *keep, int64_t step);

/* The steps of the files beside `path` that have such names, whoever wrote them, the newest first; owned by the caller.
 */
int64_t *rt_keep_list(const char *path, int *count);
char *rt_keep_name(const char *path, int64_t step); /* owned by the caller */

/* "gpt2.best.safetensors", beside the file at `path` after links; owned by the caller. */
char *rt_keep_best_name(const char *path);

/* The file at `path` has just been saved: gives it also the name `best`, which an older one may have. */
void rt_keep_best(const char *path, const char *best);

/* Ends the trainer if a file at `path` could have no second name on its file system. */
void rt_keep_check_links(const char *path, const char *option);

#endif
