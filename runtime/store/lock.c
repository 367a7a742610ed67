/* lock.c -- flock on output files.  A checkpoint is replaced by renaming, so the lock is passed from file to file: the
 * new one is locked before it gets the name, so the file of that name is always locked.  Before the first save there is
 * only its partial, FILE.tmp, which is kept empty and locked until then. */
#include "lock.h"

#include "output.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Removed when the trainer ends before the first save, or in a later one.  Global, since exit handlers have no
 * argument. */
static const char *mark_left;
static char *const *beside_left; /* ended by NULL; NULL: none */

static void forget_mark(void)
{
    mark_left = NULL;
    beside_left = NULL;
}

static void remove_mark(void)
{
    if (mark_left)
        unlink(mark_left);
    for (char *const *file = beside_left; file && *file; file++)
        unlink(*file);
    forget_mark();
}

static void leave_mark(const char *mark, char *const *beside)
{
    static bool is_handled;
    mark_left = mark;
    beside_left = beside;
    if (is_handled)
        return;
    is_handled = true;
    atexit(remove_mark);
    rt_before_abort(remove_mark);
}

/* On a file system without locks, training proceeds. */
static bool is_taken(int file) { return flock(file, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; }

static _Noreturn void refuse(const char *path, const char *option)
{
    rt_fail("%s %s: another process is writing it; wait until it ends, or give another path", option, path);
}

void rt_lock_file(int file, const char *path, const char *option)
{
    if (is_taken(file))
        refuse(path, option);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_same_file(int a, int b)
{
    struct stat info[2];
    return !fstat(a, &info[0]) && !fstat(b, &info[1]) && is_same(&info[0], &info[1]);
}

/* Is the open file still the one of that name?  Another run may have replaced it before it was locked. */
static bool is_named(int file, const char *path)
{
    struct stat info[2];
    return !fstat(file, &info[0]) && !stat(path, &info[1]) && is_same(&info[0], &info[1]);
}

/* Opens the existing file; or -1.  Some network file systems lock only files opened for writing. */
static int open_target(const char *target)
{
    int file = open(target, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return file >= 0 ? file : open(target, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Locks the file or, if it does not exist, its partial; false if another run saved between open and lock: then try
 * again.  The partial is not removed then: that run may be writing it. */
static bool try_lock(RtLock *lock, const char *target, const char *path, const char *option)
{
    *lock = (RtLock){ .file = open_target(target) };
    if (lock->file >= 0) {
        rt_lock_file(lock->file, path, option);
        if (is_named(lock->file, target))
            return true;
        close(lock->file);
        return false;
    }
    *lock = (RtLock){ rt_output_create(path, option, false), rt_output_partial(path) };
    rt_lock_file(lock->file, path, option);
    int saved = open_target(target);
    if (saved < 0 && is_named(lock->file, lock->mark))
        return true;
    if (saved >= 0)
        close(saved);
    close(lock->file);
    free(lock->mark);
    return false;
}

RtLock rt_lock_take(const char *path, const char *option)
{
    char *target = rt_output_target(path);
    RtLock lock;
    while (!try_lock(&lock, target, path, option))
        ;
    free(target);
    if (lock.mark)
        leave_mark(lock.mark, NULL);
    else
        rt_output_check(path, option);
    return lock;
}

void rt_lock_mark(const RtOutput *output, char *const *beside) { leave_mark(output->partial, beside); }

void rt_lock_next(const RtLock *lock, int file)
{
    if (!is_same_file(lock->file, file)) /* else the mark itself is the output */
        flock(file, LOCK_EX);            /* waits for a run that is about to find the target locked */
}

void rt_lock_pass(RtLock *lock, int file)
{
    forget_mark();
    free(lock->mark);
    lock->mark = NULL;
    if (is_same_file(lock->file, file)) {
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
