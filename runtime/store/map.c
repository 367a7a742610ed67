/* map.c -- maps files, and handles faults from truncated mapped files. */
#include "map.h"

#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *rt_map_file(const char *path, const char *option, int64_t *bytes)
{
    int file = open(path, O_RDONLY | O_NONBLOCK); /* open must not wait for the writer of a pipe */
    struct stat info;
    if (file < 0 || fstat(file, &info))
        rt_fail("%s %s: cannot open it: %s", option, path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        rt_fail("%s %s: it is a directory; give one file", option, path);
    if (!S_ISREG(info.st_mode))
        rt_fail("%s %s: it is a device or a pipe, which cannot be mapped; write its content to a file first", option,
                path);
    if (info.st_size == 0)
        rt_fail("%s %s: the file is empty", option, path);
    *bytes = info.st_size;
    char *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED)
        rt_fail("%s %s: cannot map it: %s", option, path, strerror(errno));
    close(file);
    return map;
}

void rt_unmap_file(const char *map, int64_t bytes) { munmap((void *)(uintptr_t)map, (size_t)bytes); }

/* Only write and _exit: async-signal-safe. */
static void end_at_lost_page(int signal)
{
    static const char message[] =
        "error: a page of a mapped file (--data, --eval-data or --load) cannot be read: the file "
        "was cut short while in use, or its disk fails; the last checkpoint is intact\n";
    (void)!write(STDERR_FILENO, message, sizeof message - 1);
    _exit(RT_EXIT_ERROR);
}

void rt_map_watch(void)
{
    struct sigaction action = { .sa_handler = end_at_lost_page };
    sigaction(SIGBUS, &action, NULL);
}
