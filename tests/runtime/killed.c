/* killed.c -- preloaded into a trainer: it is killed where it would change a file or a folder for the $KILL_AT-th time,
 * before it does; from the $FULL_AT-th time that it writes or reserves on, the disk is full.  $DIRECT: writes past the
 * kernel's cache of pages are "refused", "short", or "fatal"; $RESERVE: so are places for files, "refused" or "fatal".
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>
#include <unistd.h>

static void count(void)
{
    static atomic_int changes;
    const char *last = getenv("KILL_AT");
    if (last && atomic_fetch_add(&changes, 1) + 1 == atoi(last))
        kill(getpid(), SIGKILL);
}

static int is_full(void)
{
    static atomic_int writes;
    const char *first = getenv("FULL_AT");
    return first && atomic_fetch_add(&writes, 1) + 1 >= atoi(first);
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, mode_t) = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, "open");
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (flags & O_CREAT)
        count();
    return real(path, flags, mode);
}

typedef ssize_t Write(int file, const void *data, size_t bytes);

static ssize_t write_past_cache(Write *real, int file, const void *data, size_t bytes, const char *how)
{
    enum { FEW = 1000 };
    const int flags = fcntl(file, F_GETFL);
    if (!strcmp(how, "fatal"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "refused")) {
        errno = EINVAL;
        return -1;
    }
    fcntl(file, F_SETFL, flags & ~O_DIRECT);
    const ssize_t wrote = real(file, data, bytes < FEW ? bytes : FEW);
    fcntl(file, F_SETFL, flags);
    return wrote;
}

ssize_t write(int file, const void *data, size_t bytes)
{
    Write *real = (Write *)dlsym(RTLD_NEXT, "write");
    const char *direct = getenv("DIRECT");
    struct stat info;
    if (!fstat(file, &info) && S_ISREG(info.st_mode)) {
        count();
        if (is_full()) {
            errno = ENOSPC;
            return -1;
        }
    }
    return direct && fcntl(file, F_GETFL) & O_DIRECT ? write_past_cache(real, file, data, bytes, direct)
                                                     : real(file, data, bytes);
}

int fallocate(int file, int mode, off_t at, off_t bytes)
{
    int (*real)(int, int, off_t, off_t) = (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");
    const char *how = getenv("RESERVE");
    if (how && !strcmp(how, "fatal"))
        kill(getpid(), SIGKILL);
    count();
    errno = how ? EOPNOTSUPP : ENOSPC;
    return how || is_full() ? -1 : real(file, mode, at, bytes);
}

#define COUNTED(name, parameters, arguments)                                                                           \
    int name parameters                                                                                                \
    {                                                                                                                  \
        int(*real) parameters = (int(*) parameters)dlsym(RTLD_NEXT, #name);                                            \
        count();                                                                                                       \
        return real arguments;                                                                                         \
    }

COUNTED(fsync, (int file), (file))
COUNTED(ftruncate, (int file, off_t bytes), (file, bytes))
COUNTED(link, (const char *from, const char *to), (from, to))
COUNTED(rename, (const char *from, const char *to), (from, to))
COUNTED(unlink, (const char *path), (path))
