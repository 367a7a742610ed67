/* killed.c -- preloaded into a trainer: it is killed where it would change a file or a folder for the $KILL_AT-th time,
 * before it does; from the $FULL_AT-th time that it writes on, the disk is full. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

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

ssize_t write(int file, const void *data, size_t bytes)
{
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    struct stat info;
    if (!fstat(file, &info) && S_ISREG(info.st_mode)) {
        count();
        if (is_full()) {
            errno = ENOSPC;
            return -1;
        }
    }
    return real(file, data, bytes);
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
