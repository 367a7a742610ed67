/* elsewhere.c -- preloaded into a trainer: another machine.  Files of /proc and /sys/fs/cgroup are those below
 * $ELSEWHERE, if it is set; the affinity mask is $PROCESSORS, as "0,1,5"; the file $CUT_SHORT is cut to one page as
 * soon as it is mapped; the disk is only done with a file when $DISK_ANSWERS is there, and with what goes past the
 * kernel's cache when $DISK_TAKES is there: until then it has read nothing. */
#include <fcntl.h>

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *place_of(const char *path, char *text, size_t room)
{
    const char *root = getenv("ELSEWHERE");
    if (!root || (strncmp(path, "/proc/", 6) && strncmp(path, "/sys/fs/cgroup", 14)))
        return path;
    snprintf(text, room, "%s%s", root, path);
    return text;
}

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    char text[4096];
    return real(place_of(path, text, sizeof text), mode);
}

int stat(const char *restrict path, struct stat *restrict info)
{
    int (*real)(const char *, struct stat *) = (int (*)(const char *, struct stat *))dlsym(RTLD_NEXT, "stat");
    char text[4096];
    return real(place_of(path, text, sizeof text), info);
}

int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *mask)
{
    int (*real)(pid_t, size_t, cpu_set_t *) =
        (int (*)(pid_t, size_t, cpu_set_t *))dlsym(RTLD_NEXT, "sched_getaffinity");
    const char *given = getenv("PROCESSORS");
    if (!given)
        return real(process, bytes, mask);
    CPU_ZERO_S(bytes, mask);
    for (const char *at = given; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        CPU_SET_S((size_t)atoi(at), bytes, mask);
    return 0;
}

static void await(const char *variable)
{
    const char *name = getenv(variable);
    while (name && access(name, F_OK))
        usleep(1000);
}

int fsync(int file)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    await("DISK_ANSWERS");
    return real(file);
}

ssize_t write(int file, const void *data, size_t bytes)
{
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (fcntl(file, F_GETFL) & O_DIRECT)
        await("DISK_TAKES");
    return real(file, data, bytes);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    void *(*real)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    const char *name = getenv("CUT_SHORT");
    struct stat own, cut;
    void *map = real(at, bytes, protection, flags, file, offset);
    if (name && file >= 0 && !fstat(file, &own) && !stat(name, &cut) && own.st_ino == cut.st_ino &&
        truncate(name, sysconf(_SC_PAGESIZE)))
        abort();
    return map;
}
