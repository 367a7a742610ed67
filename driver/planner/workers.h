/* workers.h -- processes that do parts of the planner's work: see workers.c. */
#ifndef MPC_WORKERS_H
#define MPC_WORKERS_H

#include "arena.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

enum { MOST_WORKERS = 16 };

typedef struct {
    pid_t pid;
    FILE *from;
} Worker;

int worker_count(void); /* processes that can run at the same time, with the planner */

/* Does the part of that turn, and sends what it has found; turn 0 is the planner's own, to: NULL. */
typedef void (*WorkerShare)(void *context, int turn, FILE *to);

/* In the planner: takes what a process sends, until there is no more.  It may end before its time: then what it has not
 * sent has to be found otherwise. */
typedef void (*WorkerTake)(void *context, FILE *from);

void share_work(WorkerShare share, WorkerTake take, void *context, int workers);

void send_text(const char *text, FILE *to); /* NULL: none */
const char *receive_text(Arena *arena, FILE *from, bool *good);

#endif
