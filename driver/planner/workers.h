/* workers.h -- processes that do parts of the planner's work: see workers.c. */
#ifndef MPC_WORKERS_H
#define MPC_WORKERS_H

#include "arena.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct Workers Workers;

/* Does a task.  A process sends what it has found; to: NULL, in the planner itself. */
typedef void (*WorkerDo)(void *context, const void *task, FILE *to);

/* In the planner: takes what a process has found by one task; false: it is not all there. */
typedef bool (*WorkerTake)(void *context, FILE *from);

/* They know what the planner knows now.  NULL: it has no other processor. */
Workers *start_workers(WorkerDo work, void *context);

/* Tasks whose groups, 0 to ngroups - 1, ascend; one process does all of a group, in their order.  A process may end
 * before its time: then what it has not sent has to be found otherwise.  workers NULL: the planner does them all. */
typedef struct {
    const void *task; /* an array */
    const int *group; /* by task */
    size_t task_bytes;
    int count, ngroups;
} WorkerTasks;
void share_work(Workers *workers, const WorkerTasks *tasks, WorkerDo work, WorkerTake take, void *context);

void end_workers(Workers *workers);

void send_text(const char *text, FILE *to); /* NULL: none */
const char *receive_text(Arena *arena, FILE *from, bool *good);

#endif
