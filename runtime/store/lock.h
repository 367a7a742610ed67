/* lock.h -- exclusive locks: only one run writes a file. */
#ifndef MPC_RUNTIME_LOCK_H
#define MPC_RUNTIME_LOCK_H

#include "output.h"

/* Held until the process ends in any way.  If a file that is replaced as a whole does not exist yet, its partial is
 * locked instead. */
typedef struct {
    int file;   /* -1: no lock */
    char *mark; /* a partial created only for the lock; NULL: none */
} RtLock;

/* Ends the trainer if another process holds the lock of `path`, or if nothing can be written there. */
RtLock rt_lock_take(const char *path, const char *option);

/* If the trainer ends before rt_lock_pass, the partial of this output is removed, and these files, ended by NULL. */
void rt_lock_mark(const RtOutput *output, char *const *beside);

/* Locks `file`, which is about to replace the locked file. */
void rt_lock_next(const RtLock *lock, int file);

/* Passes the lock to `file`, which is now the file at that path and stays open. */
void rt_lock_pass(RtLock *lock, int file);

void rt_lock_release(RtLock *lock);

/* Locks an open file that is written in place; ends the trainer if another process holds the lock. */
void rt_lock_file(int file, const char *path, const char *option);

#endif
