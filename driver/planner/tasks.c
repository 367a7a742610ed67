/* tasks.c -- compiles programs of bounds, and layouts, in several processes at once.
 *
 * Nearly all of the time goes into compiling.  A program of bounds (structure.c) serves many blocks; so what is asked
 * for is sorted by program, and a process gets all that one program may serve.  It sends what its programs cost
 * (sized.h), or the figures of a layout; what one that ends before its time has not sent is found when it is asked for.
 */
#include "sized.h"
#include "workers.h"

#include <stdlib.h>
#include <string.h>

/* Programs that are found before it is looked again which ones are needed: as many on each machine, so that the answer
 * counts the same. */
enum { PROGRAMS_AHEAD = 16 };

/* A layout to be compiled, or one whose program is. */
typedef struct {
    PlanLayout layout;
    BlockOf of;
    bool is_exact;
    double enough; /* seconds from which a layout is too slow to be looked at closer */
    int number;    /* of the result */
} PlanTask;

/* Where the planner has what it finds itself, and what processes send; results: of layouts. */
typedef struct {
    Planner *p;
    PlanResult *result;
    bool *is_known;
} Found;

/* --- What a process sends ---------------------------------------------------------------------------------------- */

static void send_sized(const Sized *s, FILE *to)
{
    fwrite(s, sizeof *s, 1, to);
    fwrite(s->item, sizeof *s->item, (size_t)s->items, to);
    fwrite(s->term, sizeof *s->term, (size_t)s->terms, to);
    fwrite(s->packing, sizeof *s->packing, (size_t)s->packings, to);
    fwrite(s->dim, sizeof *s->dim, (size_t)s->dims, to);
    send_text(s->refused, to);
}

static void *received(Arena *arena, FILE *from, int count, size_t size, bool *good)
{
    void *array = arena_alloc(arena, (size_t)count + 1, size);
    *good &= fread(array, size, (size_t)count, from) == (size_t)count;
    return array;
}

static bool receive_sized(Sized *s, Arena *arena, FILE *from)
{
    bool good = fread(s, sizeof *s, 1, from) == 1;
    if (!good)
        return false;
    s->item = received(arena, from, s->items, sizeof *s->item, &good);
    s->term = received(arena, from, s->terms, sizeof *s->term, &good);
    s->packing = received(arena, from, s->packings, sizeof *s->packing, &good);
    s->dim = received(arena, from, s->dims, sizeof *s->dim, &good);
    s->refused = receive_text(arena, from, &good);
    return good;
}

static void send_result(const PlanResult *result, FILE *to)
{
    fwrite(result, sizeof *result, 1, to);
    send_text(result->refused, to);
    for (int i = 0; i < result->naxes; i++)
        send_text(result->exposed[i].axes, to);
}

static bool receive_result(PlanResult *result, Arena *arena, FILE *from)
{
    bool good = fread(result, sizeof *result, 1, from) == 1;
    result->refused = good ? receive_text(arena, from, &good) : NULL;
    for (int i = 0; i < result->naxes && good; i++)
        result->exposed[i].axes = receive_text(arena, from, &good);
    return good;
}

/* --- Tasks ------------------------------------------------------------------------------------------------------- */

static void do_task(void *context, const void *task, FILE *to)
{
    const Found *found = context;
    const PlanTask *t = task;
    Planner *p = found->p;
    if (!t->is_exact && known_sized(p, &t->layout, t->of))
        return;
    if (to)
        fwrite(t, sizeof *t, 1, to);
    if (t->is_exact) {
        const PlanResult result = compiled_result(p, &t->layout, t->enough, p->arena);
        if (to)
            send_result(&result, to);
        else
            found->result[t->number] = result, found->is_known[t->number] = true;
    } else {
        const Sized *s = find_sized(p, &t->layout, t->of);
        if (to)
            send_sized(s, to);
    }
}

static bool take_found(void *context, FILE *from)
{
    const Found *found = context;
    PlanTask task;
    Sized s;
    if (fread(&task, sizeof task, 1, from) != 1)
        return false;
    if (task.is_exact)
        return found->is_known[task.number] = receive_result(&found->result[task.number], found->p->arena, from);
    Arena arena = { 0 };
    const bool good = receive_sized(&s, &arena, from);
    if (good)
        keep_sized(found->p, &s);
    arena_free(&arena);
    return good;
}

/* Processes begin when there is work for two of them. */
static void do_tasks(Planner *p, const PlanTask *task, const int *group, int count, int ngroups, Found found)
{
    const WorkerTasks tasks = { task, group, sizeof *task, count, ngroups };
    if (!p->workers && ngroups > 1)
        p->workers = start_workers(do_task, &found);
    share_work(p->workers, &tasks, do_task, take_found, &found);
}

void end_tasks(Planner *p)
{
    end_workers(p->workers);
    p->workers = NULL;
}

/* --- Layouts ------------------------------------------------------------------------------------------------------ */

void compiled_results(Planner *p, const PlanLayout *layout, const double *enough, int count, PlanResult *result)
{
    PlanTask task[COMPILED_AHEAD] = { 0 };
    bool is_known[COMPILED_AHEAD] = { false };
    int group[COMPILED_AHEAD] = { 0 };
    for (int i = 0; i < count; i++) {
        task[i] = (PlanTask){ .layout = layout[i], .is_exact = true, .enough = enough[i], .number = i };
        group[i] = i;
    }
    do_tasks(p, task, group, count, count, (Found){ p, result, is_known });
    for (int i = 0; i < count; i++)
        if (!is_known[i])
            result[i] = compiled_result(p, &layout[i], enough[i], p->arena);
}

/* --- Programs ----------------------------------------------------------------------------------------------------- */

bool is_program_known(const Planner *p, const BlockAsk *ask)
{
    BlockAsk program[2];
    bool are_known = true;
    for (int i = programs_of(p, ask, program) - 1; i >= 0; i--)
        are_known = are_known && known_sized(p, &program[i].layout, program[i].of);
    return are_known || is_known(p, &ask->layout, ask->of);
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
        BlockAsk program[2];
        asks->ask[asks->asked++] = ask[i];
        for (int k = is_program_known(p, &ask[i]) ? -1 : programs_of(p, &ask[i], program) - 1; k >= 0; k--) {
            const PlanProgram key = structure_key(p, &program[k].layout, program[k].of);
            note_program(asks, &key);
        }
    }
}

typedef struct {
    PlanTask task;
    PlanProgram key;
} Asked;

static bool takes_long(const PlanProgram *key) { return key->schedule == ZB_H1 || key->schedule == ZB_V; }

/* Programs that take long first: at the end a process would wait for them. */
static int by_program(const void *a, const void *b)
{
    const PlanProgram *x = &((const Asked *)a)->key, *y = &((const Asked *)b)->key;
    return takes_long(x) != takes_long(y) ? takes_long(y) - takes_long(x) : memcmp(x, y, sizeof *x);
}

/* Those that are not known yet, by program. */
static int unknown_of(const Planner *p, const BlockAsk *ask, int count, Asked *asked)
{
    int unknown = 0;
    for (int i = 0; i < count; i++) {
        BlockAsk program[2];
        for (int k = is_program_known(p, &ask[i]) ? -1 : programs_of(p, &ask[i], program) - 1; k >= 0; k--) {
            const PlanTask task = { .layout = program[k].layout, .of = program[k].of };
            asked[unknown++] = (Asked){ task, structure_key(p, &task.layout, task.of) };
        }
    }
    qsort(asked, (size_t)unknown, sizeof *asked, by_program);
    return unknown;
}

void find_programs(Planner *p, BlockAsks *asks)
{
    Arena arena = { 0 };
    Asked *asked = NEW_ARRAY(&arena, Asked, 2 * asks->asked + 1);
    const int unknown = unknown_of(p, asks->ask, asks->asked, asked);
    PlanTask *task = NEW_ARRAY(&arena, PlanTask, unknown + 1);
    int *group = NEW_ARRAY(&arena, int, unknown + 1), programs = 0;
    for (int i = 0; i < unknown; i++) {
        programs += i > 0 && by_program(&asked[i - 1], &asked[i]) != 0;
        task[i] = asked[i].task, group[i] = programs;
    }
    do_tasks(p, task, group, unknown, unknown ? programs + 1 : 0, (Found){ p, NULL, NULL });
    arena_free(&arena);
    free(asks->ask);
    free(asks->key);
}
