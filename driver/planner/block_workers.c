/* block_workers.c -- compiles the programs of many blocks at once, in several processes.
 *
 * Nearly all of the time goes into compiling programs (structure.c), each of which serves many blocks.  So what is
 * asked for is sorted by program, and the processes get the programs in turn.  A process sends what its programs cost
 * (sized.h) through a pipe to the planner, which compiles some itself; what one that ends before its time has not sent
 * is found later, when it is asked for. */
#include "sized.h"
#include "workers.h"

#include <stdlib.h>

/* Programs that are found before it is looked again which ones are needed: as many on each machine, so that the answer
 * counts the same. */
enum { PROGRAMS_AHEAD = 16 };

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

/* --- What a process sends ---------------------------------------------------------------------------------------- */

static void send_sized(const Sized *s, FILE *to)
{
    fwrite(s, sizeof *s, 1, to);
    fwrite(s->item, sizeof *s->item, (size_t)s->items, to);
    fwrite(s->term, sizeof *s->term, (size_t)s->terms, to);
    fwrite(s->dim, sizeof *s->dim, (size_t)s->dims, to);
    send_text(s->refused, to);
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
    bool good = fread(s, sizeof *s, 1, from) == 1;
    if (!good)
        return false;
    s->item = received(arena, from, s->items, sizeof *s->item, &good);
    s->term = received(arena, from, s->terms, sizeof *s->term, &good);
    s->dim = received(arena, from, s->dims, sizeof *s->dim, &good);
    s->refused = receive_text(arena, from, &good);
    return good;
}

/* Programs to be found, by all processes. */
typedef struct {
    Planner *p;
    const Asked *asked;
    int count;
} Finding;

static void find_share(void *context, int turn, FILE *to)
{
    const Finding *finding = context;
    Planner *p = finding->p;
    for (int i = 0; i < finding->count; i++) {
        const Asked *asked = &finding->asked[i];
        const bool is_new = asked->turn == turn && !known_sized(p, &asked->layout, asked->of);
        const Sized *s = is_new ? find_sized(p, &asked->layout, asked->of) : NULL;
        if (s && to)
            send_sized(s, to);
    }
}

static void take_programs(void *context, FILE *from)
{
    const Finding *finding = context;
    Arena arena = { 0 };
    Sized s;
    while (receive_sized(&s, &arena, from)) {
        keep_sized(finding->p, &s);
        arena_free(&arena);
    }
    arena_free(&arena);
}

/* --- All programs ----------------------------------------------------------------------------------------------- */

bool is_program_known(const Planner *p, const BlockAsk *ask)
{
    const PlanLayout program = program_layout(p, &ask->layout, ask->of);
    return is_known(p, &ask->layout, ask->of) || known_sized(p, &program, ask->of);
}

bool are_enough(const BlockAsks *asks) { return asks->programs >= PROGRAMS_AHEAD; }

static void note_program(BlockAsks *asks, const PlanProgram *key)
{
    if (!asks->key && !(asks->key = malloc(sizeof *key * PROGRAMS_AHEAD)))
        out_of_memory(sizeof *key * PROGRAMS_AHEAD);
    for (int i = 0; i < asks->programs; i++)
        if (memcmp(&asks->key[i], key, sizeof *key) == 0)
            return;
    if (asks->programs < PROGRAMS_AHEAD)
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
    const int workers = worker_count();
    int programs = 0;
    if (!asked)
        out_of_memory(sizeof *asked * (size_t)(asks->asked + 1));
    const int unknown = unknown_of(p, asks->ask, asks->asked, asked);
    for (int i = 0; i < unknown; i++) {
        programs += i == 0 || by_program(&asked[i - 1], &asked[i]) != 0;
        asked[i].turn = (programs - 1) % workers;
    }
    share_work(find_share, take_programs, &(Finding){ p, asked, unknown }, programs < workers ? programs : workers);
    free(asked);
    free(asks->ask);
    free(asks->key);
}
