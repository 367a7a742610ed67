/* map.c -- maps files, and notices pages of them that cannot be read. */
#include "map.h"

#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A handler of signals reads the list. */
typedef struct MappedFile {
    const char *map, *option;
    char *path;
    int64_t bytes;
    atomic_bool is_lost; /* a page of it could not be read */
    _Atomic(struct MappedFile *) next;
} MappedFile;

static _Atomic(MappedFile *) mapped;
static long page_bytes;

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
    MappedFile *one = rt_allocate(1, sizeof *one);
    *one = (MappedFile){ .map = map, .bytes = *bytes, .option = option, .path = rt_text("%s", path), .next = mapped };
    atomic_store(&mapped, one);
    return map;
}

void rt_unmap_file(const char *map, int64_t bytes)
{
    munmap((void *)(uintptr_t)map, (size_t)bytes);
    _Atomic(MappedFile *) *at = &mapped;
    for (MappedFile *one; (one = atomic_load(at)); at = &one->next)
        if (one->map == map && atomic_load(&one->is_lost)) { /* is to be asked for */
            one->bytes = 0;
            return;
        } else if (one->map == map) {
            atomic_store(at, atomic_load(&one->next));
            free(one->path);
            free(one);
            return;
        }
}

/* --- Pages that cannot be read ------------------------------------------------------------------ */

static MappedFile *mapped_at(const char *address)
{
    MappedFile *one = atomic_load(&mapped);
    while (one && (address < one->map || address >= one->map + one->bytes))
        one = atomic_load(&one->next);
    return one;
}

/* In the handler of a signal: no more than system calls. */
static _Noreturn void end_at_other_page(void)
{
    static const char message[] = "error: memory cannot be read (SIGBUS): shared memory is full (df /dev/shm), or the "
                                  "memory of this machine fails; this step is lost\n";
    (void)!write(STDERR_FILENO, message, sizeof message - 1);
    _exit(RT_EXIT_ERROR);
}

/* Zeros take the place of the page, so that whoever reads it goes on to where the trainer asks for the fault. */
static void replace_page(int signal, siginfo_t *info, void *context)
{
    const int error = errno;
    MappedFile *one = mapped_at(info->si_addr);
    void *page = (void *)((uintptr_t)info->si_addr & ~(uintptr_t)(page_bytes - 1));
    if (!one || mmap(page, (size_t)page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        end_at_other_page();
    atomic_store(&one->is_lost, true);
    errno = error;
}

void rt_map_watch(void)
{
    page_bytes = sysconf(_SC_PAGESIZE);
    struct sigaction action = { .sa_sigaction = replace_page, .sa_flags = SA_SIGINFO };
    sigaction(SIGBUS, &action, NULL);
}

char *rt_map_fault(void)
{
    for (const MappedFile *one = atomic_load(&mapped); one; one = atomic_load(&one->next))
        if (atomic_load(&one->is_lost))
            return rt_text("%s %s: a page of it cannot be read: the file was cut short while in use, or its disk fails",
                           one->option, one->path);
    return NULL;
}

void rt_map_check(void)
{
    const char *fault = rt_map_fault();
    if (fault)
        rt_fail("%s; nothing has been trained yet", fault);
}
