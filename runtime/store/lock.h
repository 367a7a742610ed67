/* lock.h -- one run at a time writes a file. */
#ifndef MPC_RUNTIME_LOCK_H
#define MPC_RUNTIME_LOCK_H

/* Held until the process ends, however it does.  A file that is replaced whole has no content of its own yet while it
 * is not there: then its partial stands for it. */
typedef struct {
    int file;   /* -1: none is held */
    char *mark; /* the partial that was made for the lock alone; NULL: none */
} RtLock;

/* Ends the trainer if another process holds the lock of `path`, or if nothing can be written there. */
RtLock rt_lock_take(const char *path, const char *option);

/* Locks `file`, which is about to take the place of what is locked. */
void rt_lock_next(const RtLock *lock, int file);

/* `file` has become the file at that path: the lock goes over to it.  It stays open. */
void rt_lock_pass(RtLock *lock, int file);

void rt_lock_release(RtLock *lock);

/* Of an open file that is written in place; ends the trainer if another process holds it. */
void rt_lock_file(int file, const char *path, const char *option);

#endif
