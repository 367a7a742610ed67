/* workers.c -- processes that do parts of the planner's work at the same time as itself.
 *
 * A process begins as a copy of the planner, and waits for tasks.  Of those that it gets, it does a group at a time, as
 * the planner and the other processes do: the number of the next group is in memory that all share.  What it finds, it
 * sends when there are no more groups, so that it never waits for the planner to read.  A process lives until the
 * planner has no more tasks: a new one would begin with pages of memory that are copied when it writes to them. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "workers.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORKERS = 16 };

typedef struct {
    pid_t pid;
    int tasks;  /* a socket: it may end before it has read them */
    FILE *from; /* what it has found; NULL: it has ended */
} Worker;

struct Workers {
    atomic_int *next; /* group */
    int count;
    Worker worker[MOST_WORKERS];
};

/* --- In a process ------------------------------------------------------------------------------------------------ */

static void do_groups(atomic_int *next, const WorkerTasks *tasks, WorkerDo work, void *context, FILE *to)
{
    for (int group = atomic_fetch_add(next, 1); group < tasks->ngroups; group = atomic_fetch_add(next, 1))
        for (int i = 0; i < tasks->count; i++)
            if (tasks->group[i] == group)
                work(context, (const char *)tasks->task + (size_t)i * tasks->task_bytes, to);
}

static void read_or_end(int from, void *to, size_t bytes)
{
    for (char *at = to; bytes;) {
        const ssize_t got = read(from, at, bytes);
        if (got <= 0)
            _exit(0); /* the planner is done; nothing of its is written twice */
        at += got, bytes -= (size_t)got;
    }
}

static void *read_array(int from, int count, size_t size)
{
    void *array = malloc((size_t)count * size + 1);
    if (!array)
        out_of_memory((size_t)count * size);
    read_or_end(from, array, (size_t)count * size);
    return array;
}

/* Sends its length first. */
static void send_found(const char *found, size_t bytes, FILE *to)
{
    fwrite(&bytes, sizeof bytes, 1, to);
    fwrite(found, 1, bytes, to);
    fflush(to);
}

static void serve(const Workers *w, int from, FILE *to, WorkerDo work, void *context)
{
    for (;;) {
        WorkerTasks tasks = { 0 };
        char *found = NULL;
        size_t bytes = 0;
        read_or_end(from, &tasks, sizeof tasks);
        int *group = read_array(from, tasks.count, sizeof *group);
        void *task = read_array(from, tasks.count, tasks.task_bytes);
        tasks.group = group, tasks.task = task;
        FILE *out = open_memory(&found, &bytes);
        do_groups(w->next, &tasks, work, context, out);
        fclose(out);
        send_found(found, bytes, to);
        free(found), free(group), free(task);
    }
}

/* --- In the planner ---------------------------------------------------------------------------------------------- */

/* Returns in the planner alone.  from NULL: there is no such process. */
static Worker start_worker(const Workers *w, WorkerDo work, void *context)
{
    int tasks[2], found[2];
    Worker worker = { .tasks = -1 };
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, tasks) != 0)
        return worker;
    if (pipe(found) != 0) {
        close(tasks[0]), close(tasks[1]);
        return worker;
    }
    fflush(NULL);
    worker.pid = fork();
    if (worker.pid == 0) {
        signal(SIGPIPE, SIG_DFL); /* nobody reads: the planner has ended */
        close(tasks[0]), close(found[0]);
        FILE *to = fdopen(found[1], "w");
        if (to)
            serve(w, tasks[1], to, work, context);
        _exit(0);
    }
    close(tasks[1]), close(found[1]);
    worker.tasks = tasks[0];
    worker.from = worker.pid > 0 ? fdopen(found[0], "r") : NULL;
    if (!worker.from)
        close(found[0]);
    return worker;
}

Workers *start_workers(WorkerDo work, void *context)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    void *shared = mmap(NULL, sizeof(atomic_int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Workers *w = processors > 1 && shared != MAP_FAILED ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return NULL;
    w->next = shared;
    for (; w->count < processors - 1 && w->count < MOST_WORKERS; w->count++)
        w->worker[w->count] = start_worker(w, work, context);
    return w;
}

static bool send_all(int to, const void *from, size_t bytes)
{
    for (const char *at = from; bytes;) {
        const ssize_t sent = send(to, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent, bytes -= (size_t)sent;
    }
    return true;
}

static void lose(Worker *worker)
{
    if (worker->from)
        fclose(worker->from);
    worker->from = NULL;
}

static void send_tasks(Worker *worker, const WorkerTasks *tasks)
{
    const size_t count = (size_t)tasks->count;
    if (worker->from && !(send_all(worker->tasks, tasks, sizeof *tasks) &&
                          send_all(worker->tasks, tasks->group, count * sizeof *tasks->group) &&
                          send_all(worker->tasks, tasks->task, count * tasks->task_bytes)))
        lose(worker);
}

static void take_all(Worker *worker, WorkerTake take, void *context)
{
    size_t bytes;
    bool good = worker->from && fread(&bytes, sizeof bytes, 1, worker->from) == 1;
    char *found = good ? malloc(bytes + 1) : NULL;
    good = found && fread(found, 1, bytes, worker->from) == bytes;
    FILE *from = good && bytes ? fmemopen(found, bytes, "r") : NULL;
    while (from && take(context, from))
        ;
    if (from)
        fclose(from);
    free(found);
    if (!good)
        lose(worker);
}

void share_work(Workers *w, const WorkerTasks *tasks, WorkerDo work, WorkerTake take, void *context)
{
    atomic_int alone = 0, *next = w ? w->next : &alone;
    const int processes = !w || tasks->ngroups < 2 ? 0 : w->count < tasks->ngroups ? w->count : tasks->ngroups - 1;
    atomic_store(next, 0);
    for (int i = 0; i < processes; i++)
        send_tasks(&w->worker[i], tasks);
    do_groups(next, tasks, work, context, NULL);
    for (int i = 0; i < processes; i++)
        take_all(&w->worker[i], take, context);
}

void end_workers(Workers *w)
{
    for (int i = 0; w && i < w->count; i++) {
        lose(&w->worker[i]);
        close(w->worker[i].tasks);
    }
    for (int i = 0; w && i < w->count; i++)
        while (w->worker[i].pid > 0 && waitpid(w->worker[i].pid, NULL, 0) < 0)
            ;
    if (w)
        munmap(w->next, sizeof *w->next);
    free(w);
}

void send_text(const char *text, FILE *to)
{
    const size_t length = text ? strlen(text) + 1 : 0;
    fwrite(&length, sizeof length, 1, to);
    if (text)
        fwrite(text, 1, length, to);
}

const char *receive_text(Arena *arena, FILE *from, bool *good)
{
    size_t length = 0;
    *good &= fread(&length, sizeof length, 1, from) == 1;
    char *text = *good && length ? arena_alloc(arena, length, 1) : NULL;
    *good &= !text || fread(text, 1, length, from) == length;
    return text;
}
