/* unfinished.c -- see unfinished.h.  The list changes while signals are blocked; their handler only makes calls that
 * are safe there. */
#include "unfinished.h"

#include "arena.h"
#include "runtime/process.h"

#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    const char *path; /* NULL: a process */
    pid_t pid;
} Entry;

static struct {
    Entry *at;
    int count, room;
    pid_t owner; /* a copy of the process, as the planner's workers are, removes nothing */
} list;

static const int requests[] = { SIGINT, SIGTERM, SIGHUP };

static sigset_t all_requests(void) { return rt_signal_set(requests, sizeof requests / sizeof *requests); }

static void end(const Entry *entry)
{
    if (!entry->path) {
        kill(entry->pid, SIGTERM);
        waitpid(entry->pid, NULL, 0); /* else it may write what has been removed */
    } else if (unlink(entry->path) != 0)
        rmdir(entry->path);
}

static void end_all(int signal)
{
    struct sigaction action = { .sa_handler = SIG_DFL };
    for (int i = list.count - 1; i >= 0 && list.owner == getpid(); i--)
        end(&list.at[i]);
    sigaction(signal, &action, NULL);
    raise(signal); /* delivered when this handler returns */
}

/* A request that is ignored, as under nohup, stays so. */
static void catch_requests(void)
{
    struct sigaction action = { .sa_handler = end_all, .sa_mask = all_requests() }, former;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (sigaction(requests[i], NULL, &former) == 0 && former.sa_handler != SIG_IGN)
            sigaction(requests[i], &action, NULL);
}

/* Returns the mask before. */
static sigset_t block_requests(void)
{
    const sigset_t all = all_requests();
    sigset_t before;
    sigprocmask(SIG_BLOCK, &all, &before);
    return before;
}

/* While requests are blocked. */
static void add(Entry entry)
{
    if (!list.at)
        catch_requests();
    if (list.count == list.room) {
        list.room = 2 * list.room + 16;
        list.at = realloc(list.at, (size_t)list.room * sizeof *list.at);
        if (!list.at)
            out_of_memory((size_t)list.room * sizeof *list.at);
    }
    list.owner = getpid();
    list.at[list.count++] = entry;
}

static bool is_same(const Entry *a, const Entry *b)
{
    return a->path ? b->path && strcmp(a->path, b->path) == 0 : !b->path && a->pid == b->pid;
}

static void drop(Entry entry)
{
    const sigset_t before = block_requests();
    int i = list.count - 1;
    while (i >= 0 && !is_same(&list.at[i], &entry))
        i--;
    if (i >= 0)
        memmove(&list.at[i], &list.at[i + 1], (size_t)(--list.count - i) * sizeof *list.at);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

void note_unfinished(const char *path)
{
    const sigset_t before = block_requests();
    add((Entry){ .path = path });
    sigprocmask(SIG_SETMASK, &before, NULL);
}

void forget_unfinished(const char *path) { drop((Entry){ .path = path }); }

int start_writer(const char *const argv[], pid_t *pid)
{
    extern char **environ;
    const sigset_t before = block_requests();
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &before);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int reason = posix_spawnp(pid, argv[0], NULL, &attributes, (char *const *)argv, environ);
    if (!reason)
        add((Entry){ .pid = *pid });
    posix_spawnattr_destroy(&attributes);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return reason;
}

void forget_writer(pid_t pid) { drop((Entry){ .pid = pid }); }
