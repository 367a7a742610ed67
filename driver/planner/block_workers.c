/* block_workers.c -- finds many blocks at once, in several processes.
 *
 * Nearly all of the time goes into compiling programs (structure.c), each of which serves some of the blocks.  So
 * blocks are sorted by their program, and each process gets a range of them.  A process sends its blocks through a pipe
 * to the planner, which has a range itself; of one that ends before its time, blocks are found later, when they are
 * asked for. */
#include "block.h"

#include "structure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    BlockAsk ask;
    PlanProgram program;
} Asked;

static int by_program(const void *a, const void *b)
{
    return memcmp(&((const Asked *)a)->program, &((const Asked *)b)->program, sizeof(PlanProgram));
}

/* --- A process -------------------------------------------------------------------------------------------------- */

typedef struct {
    pid_t pid;
    FILE *from;
} Worker;

static void send_block(const Block *block, FILE *to)
{
    const size_t length = block->refused ? strlen(block->refused) : 0;
    fwrite(block, sizeof *block, 1, to);
    fwrite(&length, sizeof length, 1, to);
    fwrite(block->refused, 1, length, to);
}

/* Returns in the planner alone; from NULL: there is no such process. */
static Worker start_worker(Planner *p, const Asked *asked, int count)
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
        for (int i = 0; i < count && to; i++)
            send_block(find_block(p, &asked[i].ask.layout, asked[i].ask.of), to);
        if (to)
            fflush(to);
        _exit(0); /* nothing of the planner's is written twice */
    }
    close(ends[1]);
    worker.from = worker.pid > 0 ? fdopen(ends[0], "r") : NULL;
    if (!worker.from)
        close(ends[0]);
    return worker;
}

static void take_blocks(Planner *p, Worker *worker)
{
    Block block;
    size_t length;
    while (worker->from && fread(&block, sizeof block, 1, worker->from) == 1 &&
           fread(&length, sizeof length, 1, worker->from) == 1) {
        char *refused = arena_alloc(p->arena, length + 1, 1);
        if (fread(refused, 1, length, worker->from) != length)
            break;
        block.refused = block.refused ? refused : NULL;
        keep_block(p, &block);
    }
    if (worker->from)
        fclose(worker->from);
    while (worker->pid > 0 && waitpid(worker->pid, NULL, 0) < 0)
        ;
}

/* --- All blocks ------------------------------------------------------------------------------------------------- */

/* Where the last program before `to` begins, if it is not the one before `from`. */
static int end_of_range(const Asked *asked, int from, int to, int count)
{
    while (to > from && to < count && by_program(&asked[to - 1], &asked[to]) == 0)
        to++;
    return to;
}

void find_blocks(Planner *p, const BlockAsk *ask, int count)
{
    enum { MOST = 16 };
    Asked *asked = malloc(sizeof *asked * (size_t)(count + 1));
    Worker worker[MOST] = { { 0 } };
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int workers = processors < 1 ? 1 : processors > MOST ? MOST : (int)processors;
    int unknown = 0, from = 0;
    if (!asked)
        out_of_memory(sizeof *asked * (size_t)(count + 1));
    for (int i = 0; i < count; i++)
        if (!known_block(p, &ask[i].layout, ask[i].of))
            asked[unknown++] = (Asked){ ask[i], program_of(p, &ask[i].layout, ask[i].of) };
    qsort(asked, (size_t)unknown, sizeof *asked, by_program);
    for (int i = 1; i < workers; i++) {
        const int to = end_of_range(asked, from, from + (unknown - from) / (workers - i + 1), unknown);
        if (to > from)
            worker[i] = start_worker(p, asked + from, to - from);
        from = to;
    }
    for (int i = from; i < unknown; i++)
        find_block(p, &asked[i].ask.layout, asked[i].ask.of);
    for (int i = 1; i < workers; i++)
        take_blocks(p, &worker[i]);
    free(asked);
}
