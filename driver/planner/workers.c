/* workers.c -- processes that do parts of the planner's work at the same time as itself.
 *
 * A process begins as a copy of the planner, does its share, and sends what it has found through a pipe. */
#include "workers.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int worker_count(void)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > MOST_WORKERS ? MOST_WORKERS : (int)processors;
}

/* Returns in the planner alone; from NULL: there is no such process. */
static Worker start_worker(WorkerShare share, void *context, int turn)
{
    int ends[2];
    Worker worker = { 0 };
    if (pipe(ends) != 0)
        return worker;
    fflush(NULL);
    worker.pid = fork();
    if (worker.pid == 0) {
        FILE *to = fdopen(ends[1], "w");
        close(ends[0]);
        if (to) {
            share(context, turn, to);
            fflush(to);
        }
        _exit(0); /* nothing of the planner's is written twice */
    }
    close(ends[1]);
    worker.from = worker.pid > 0 ? fdopen(ends[0], "r") : NULL;
    if (!worker.from)
        close(ends[0]);
    return worker;
}

void share_work(WorkerShare share, WorkerTake take, void *context, int workers)
{
    Worker worker[MOST_WORKERS] = { { 0 } };
    for (int i = 1; i < workers; i++)
        worker[i] = start_worker(share, context, i);
    share(context, 0, NULL);
    for (int i = 1; i < workers; i++) {
        if (worker[i].from) {
            take(context, worker[i].from);
            fclose(worker[i].from);
        }
        while (worker[i].pid > 0 && waitpid(worker[i].pid, NULL, 0) < 0)
            ;
    }
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
