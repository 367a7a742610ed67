/* lock.c -- flock on what is written.  A checkpoint is replaced by renaming, so the lock goes from file to file; before
 * the first there is only its partial, FILE.tmp, which is left empty and locked until then. */
#include "lock.h"

#include "output.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <sys/file.h>
#include <unistd.h>

/* What is removed when the trainer ends before the first save.  A handler of exit takes no argument. */
static char *mark_left;

static void remove_mark(void)
{
    if (mark_left)
        unlink(mark_left);
    mark_left = NULL;
}

/* A file system without locks is no reason not to train. */
static bool is_taken(int file) { return flock(file, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; }

static _Noreturn void refuse(const char *path, const char *option)
{
    rt_fail("%s %s: another process is writing it; wait for its end, or give another place", option, path);
}

void rt_lock_file(int file, const char *path, const char *option)
{
    if (is_taken(file))
        refuse(path, option);
}

/* The file that is there, locked; or -1. */
static int lock_target(const char *target, const char *path, const char *option)
{
    int file =
        open(target, O_RDWR | O_CLOEXEC | O_NONBLOCK); /* some network file systems lock only what may be written */
    if (file < 0)
        file = open(target, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0)
        rt_lock_file(file, path, option);
    return file;
}

RtLock rt_lock_take(const char *path, const char *option)
{
    char *target = rt_output_target(path), *mark = rt_output_partial(path);
    RtLock lock = { .file = lock_target(target, path, option) };
    int file = rt_output_create(path, option, false);
    rt_lock_file(file, path, option);
    if (lock.file < 0)
        lock.file = lock_target(target, path, option); /* another run may have saved just now */
    if (lock.file >= 0) {
        unlink(mark);
        close(file);
        free(mark);
    } else {
        lock = (RtLock){ file, mark };
        mark_left = mark;
        atexit(remove_mark);
    }
    free(target);
    return lock;
}

void rt_lock_pass(RtLock *lock, int file)
{
    mark_left = NULL;
    free(lock->mark);
    lock->mark = NULL;
    if (is_taken(file)) { /* by this very lock: the mark has become the file */
        close(file);
        return;
    }
    close(lock->file);
    lock->file = file;
}

void rt_lock_release(RtLock *lock)
{
    if (lock->mark)
        remove_mark();
    free(lock->mark);
    if (lock->file >= 0)
        close(lock->file);
    *lock = (RtLock){ .file = -1 };
}
