/* block_workers.c -- compiles the programs of many blocks at once, in several processes.
 *
 * Nearly all of the time goes into compiling programs (structure.c), each of which serves many blocks.  So what is
 * asked for is sorted by program, and the processes get the programs in turn.  A process sends what its programs cost
 * (sized.h) through a pipe to the planner, which compiles some itself; what one that ends before its time has not sent
 * is found later, when it is asked for. */
#include "sized.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Programs that each process finds before it is looked again which ones are needed. */
enum { MOST_PROCESSES = 16, PROGRAMS_EACH = 8 };

typedef struct {
    PlanLayout layout; /* of a program */
    BlockOf of;
    int turn; /* of the process */
    PlanProgram key;
} Asked;

static int by_program(const void *a, const void *b)
{
    return memcmp(&((const Asked *)a)->key, &((const Asked *)b)->key, sizeof(PlanProgram));
}

/* --- A process -------------------------------------------------------------------------------------------------- */

typedef struct {
    pid_t pid;
    FILE *from;
} Worker;

static void send_sized(const Sized *s, FILE *to)
{
    const size_t length = s->refused ? strlen(s->refused) : 0;
    fwrite(s, sizeof *s, 1, to);
    fwrite(s->item, sizeof *s->item, (size_t)s->items, to);
    fwrite(s->term, sizeof *s->term, (size_t)s->terms, to);
    fwrite(s->dim, sizeof *s->dim, (size_t)s->dims, to);
    fwrite(&length, sizeof length, 1, to);
    fwrite(s->refused, 1, length, to);
}

static void *received(Arena *arena, FILE *from, int count, size_t size, bool *good)
{
    void *array = arena_alloc(arena, (size_t)count + 1, size);
    *good &= fread(array, size, (size_t)count, from) == (size_t)count;
    return array;
}

/* false: there is no more. */
static bool receive_sized(Sized *s, Arena *arena, FILE *from)
{
    size_t length = 0;
    bool good = fread(s, sizeof *s, 1, from) == 1;
    if (!good)
        return false;
    s->item = received(arena, from, s->items, sizeof *s->item, &good);
    s->term = received(arena, from, s->terms, sizeof *s->term, &good);
    s->dim = received(arena, from, s->dims, sizeof *s->dim, &good);
    good &= fread(&length, sizeof length, 1, from) == 1;
    char *refused = good ? received(arena, from, (int)length, 1, &good) : NULL;
    s->refused = s->refused ? refused : NULL;
    return good;
}

static void find_share(Planner *p, const Asked *asked, int count, int turn, FILE *to)
{
    for (int i = 0; i < count; i++) {
        const bool is_new = asked[i].turn == turn && !known_sized(p, &asked[i].layout, asked[i].of);
        const Sized *s = is_new ? find_sized(p, &asked[i].layout, asked[i].of) : NULL;
        if (s && to)
            send_sized(s, to);
    }
}

/* Returns in the planner alone; from NULL: there is no such process. */
static Worker start_worker(Planner *p, const Asked *asked, int count, int turn)
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
            find_share(p, asked, count, turn, to);
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

static void take_programs(Planner *p, Worker *worker)
{
    Arena arena = { 0 };
    Sized s;
    while (worker->from && receive_sized(&s, &arena, worker->from)) {
        keep_sized(p, &s);
        arena_free(&arena);
    }
    arena_free(&arena);
    if (worker->from)
        fclose(worker->from);
    while (worker->pid > 0 && waitpid(worker->pid, NULL, 0) < 0)
        ;
}

/* --- All programs ----------------------------------------------------------------------------------------------- */

bool is_program_known(const Planner *p, const BlockAsk *ask)
{
    const PlanLayout program = program_layout(p, &ask->layout, ask->of);
    return is_known(p, &ask->layout, ask->of) || known_sized(p, &program, ask->of);
}

static int process_count(void)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > MOST_PROCESSES ? MOST_PROCESSES : (int)processors;
}

bool are_enough(const BlockAsks *asks) { return asks->programs >= PROGRAMS_EACH * process_count(); }

static void note_program(BlockAsks *asks, const PlanProgram *key)
{
    enum { MOST = MOST_PROCESSES * PROGRAMS_EACH };
    if (!asks->key && !(asks->key = malloc(sizeof *key * MOST)))
        out_of_memory(sizeof *key * MOST);
    for (int i = 0; i < asks->programs; i++)
        if (memcmp(&asks->key[i], key, sizeof *key) == 0)
            return;
    if (asks->programs < MOST)
        asks->key[asks->programs++] = *key;
}

void add_asks(const Planner *p, BlockAsks *asks, const BlockAsk *ask, int count)
{
    if (asks->asked + count > asks->room) {
        asks->room = 2 * asks->room + count;
        asks->ask = realloc(asks->ask, sizeof *ask * (size_t)asks->room);
        if (!asks->ask)
            out_of_memory(sizeof *ask * (size_t)asks->room);
    }
    for (int i = 0; i < count; i++) {
        const PlanLayout program = program_layout(p, &ask[i].layout, ask[i].of);
        const PlanProgram key = structure_key(p, &program, ask[i].of);
        asks->ask[asks->asked++] = ask[i];
        if (!is_program_known(p, &ask[i]))
            note_program(asks, &key);
    }
}

/* Those that are not known yet, by program. */
static int unknown_of(const Planner *p, const BlockAsk *ask, int count, Asked *asked)
{
    int unknown = 0;
    for (int i = 0; i < count; i++)
        if (!is_program_known(p, &ask[i])) {
            Asked *to = &asked[unknown++];
            *to = (Asked){ .layout = program_layout(p, &ask[i].layout, ask[i].of), .of = ask[i].of };
            to->key = structure_key(p, &to->layout, to->of);
        }
    qsort(asked, (size_t)unknown, sizeof *asked, by_program);
    return unknown;
}

void find_programs(Planner *p, BlockAsks *asks)
{
    Asked *asked = malloc(sizeof *asked * (size_t)(asks->asked + 1));
    Worker worker[MOST_PROCESSES] = { { 0 } };
    const int workers = process_count();
    int programs = 0;
    if (!asked)
        out_of_memory(sizeof *asked * (size_t)(asks->asked + 1));
    const int unknown = unknown_of(p, asks->ask, asks->asked, asked);
    for (int i = 0; i < unknown; i++) {
        programs += i > 0 && by_program(&asked[i - 1], &asked[i]) != 0;
        asked[i].turn = programs % workers;
    }
    for (int i = 1; i < workers && i <= programs; i++)
        worker[i] = start_worker(p, asked, unknown, i);
    find_share(p, asked, unknown, 0, NULL);
    for (int i = 1; i < workers; i++)
        take_programs(p, &worker[i]);
    free(asked);
    free(asks->ask);
    free(asks->key);
}
