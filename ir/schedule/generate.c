/* generate.c -- the generators of pipeline schedules: each writes the actions of one rank, in their order. */
#include "schedule.h"

#include "near.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

enum { ANY_CHUNKS = INT_MAX, MOST_ACTIONS = 1 << 24 };

int stage_count(const PipelineSchedule *s) { return s->ranks * s->chunks; }

int rank_of_stage(const PipelineSchedule *s, int stage)
{
    int rank = stage % s->ranks;
    return s->placement == VEE && stage >= s->ranks ? s->ranks - 1 - rank : rank;
}

int stage_on_rank(const PipelineSchedule *s, int rank, int chunk)
{
    return chunk * s->ranks + (s->placement == VEE && chunk == 1 ? s->ranks - 1 - rank : rank);
}

/* --- The program of one rank ----------------------------------------------------------------------- */

typedef struct {
    const PipelineSchedule *s;
    int rank, count;
    Action *action;
} Program;

static int actions_of_rank(const PipelineSchedule *s) { return s->chunks * s->micros * (s->splits_backward ? 3 : 2); }

static void add(Program *p, ActionKind kind, int chunk, int micro)
{
    assert(p->count < actions_of_rank(p->s));
    p->action[p->count++] = (Action){ kind, stage_on_rank(p->s, p->rank, chunk), micro };
}

static int smaller(int a, int b) { return a < b ? a : b; }

/* --- Without overlap of micro-batches, and with all of them in flight ----------------------------- */

static void naive(Program *p)
{
    for (int micro = 0; micro < p->s->micros; micro++) {
        for (int chunk = 0; chunk < p->s->chunks; chunk++)
            add(p, FORWARD_ACTION, chunk, micro);
        for (int chunk = p->s->chunks - 1; chunk >= 0; chunk--)
            add(p, BACKWARD_ACTION, chunk, micro);
    }
}

/* Huang et al., arXiv 1811.06965; with several chunks one after the other, as Lamy-Poirier, arXiv 2211.05953. */
static void gpipe(Program *p)
{
    for (int chunk = 0; chunk < p->s->chunks; chunk++)
        for (int micro = 0; micro < p->s->micros; micro++)
            add(p, FORWARD_ACTION, chunk, micro);
    for (int chunk = p->s->chunks - 1; chunk >= 0; chunk--)
        for (int micro = 0; micro < p->s->micros; micro++)
            add(p, BACKWARD_ACTION, chunk, micro);
}

/* --- One forward, one backward -------------------------------------------------------------------- */

/* F and B in turns, `ahead` F first; `add_one` adds the number-th of the rank. */
static void alternate(Program *p, int ahead, int total, void (*add_one)(Program *p, ActionKind kind, int number))
{
    for (int f = 0; f < ahead; f++)
        add_one(p, FORWARD_ACTION, f);
    for (int b = 0; b < total; b++) {
        if (b + ahead < total)
            add_one(p, FORWARD_ACTION, b + ahead);
        add_one(p, BACKWARD_ACTION, b);
    }
}

static void add_of_micro(Program *p, ActionKind kind, int micro) { add(p, kind, 0, micro); }

/* Narayanan et al., arXiv 2006.09503: as many F ahead as there are ranks behind. */
static void one_f_one_b(Program *p)
{
    const int micros = p->s->micros;
    alternate(p, smaller(p->s->ranks - 1 - p->rank, micros), micros, add_of_micro);
}

/* The same with chunks: Narayanan et al., arXiv 2104.04473.  Groups of `ranks` micro-batches go through the chunks. */
static void add_interleaved(Program *p, ActionKind kind, int number)
{
    const int ranks = p->s->ranks, chunks = p->s->chunks, group = number / (ranks * chunks);
    int chunk = number / ranks % chunks;
    add(p, kind, kind == FORWARD_ACTION ? chunk : chunks - 1 - chunk, group * ranks + number % ranks);
}

static void interleaved(Program *p)
{
    const int ranks = p->s->ranks, chunks = p->s->chunks, total = p->s->micros * chunks;
    alternate(p, smaller((ranks - 1 - p->rank) * 2 + (chunks - 1) * ranks, total), total, add_interleaved);
}

/* --- Zero bubble ---------------------------------------------------------------------------------- */

/* Qi et al., arXiv 2401.10241: the F and B of 1F1B; rank i puts off i W, which fill its idle time at the end.  With the
 * published costs its bubble is the published one to four decimals (tests/unit/test_schedule.c). */
static void zb_h1(Program *p)
{
    const int micros = p->s->micros, ahead = smaller(p->s->ranks - 1 - p->rank, micros);
    int weights = 0;
    for (int f = 0; f < ahead; f++)
        add(p, FORWARD_ACTION, 0, f);
    for (int b = 0; b < micros; b++) {
        if (b + ahead < micros)
            add(p, FORWARD_ACTION, 0, b + ahead);
        add(p, BACKWARD_ACTION, 0, b);
        if (b + 1 - weights > p->rank)
            add(p, WEIGHT_ACTION, 0, weights++);
    }
    while (weights < micros)
        add(p, WEIGHT_ACTION, 0, weights++);
}

/* The next F, B or W of each chunk. */
typedef struct {
    Program *p;
    int next[2][N_ACTION_KINDS];
} Vee;

/* Counts on where there are no more micro-batches: the pattern of few is that of 2 ranks - 1 with the rest left out. */
static void add_next(Vee *v, ActionKind kind, int chunk)
{
    int micro = v->next[chunk][kind]++;
    if (micro < v->p->s->micros)
        add(v->p, kind, chunk, micro);
}

static void add_backward_and_weight(Vee *v, int chunk)
{
    add_next(v, BACKWARD_ACTION, chunk);
    add_next(v, WEIGHT_ACTION, chunk);
}

static void warm_up_vee(Vee *v)
{
    const int rank = v->p->rank, behind = v->p->s->ranks - rank;
    for (int i = 0; i < 2 * behind - 1; i++)
        add_next(v, FORWARD_ACTION, 0);
    for (int i = 0; i < rank; i++) {
        add_next(v, FORWARD_ACTION, 1);
        add_next(v, FORWARD_ACTION, 0);
    }
    for (int i = 0; i < behind; i++) {
        add_next(v, FORWARD_ACTION, 1);
        add_backward_and_weight(v, 1);
    }
}

static void drain_vee(Vee *v, int micros)
{
    const int rank = v->p->rank, behind = v->p->s->ranks - rank;
    for (int i = 0; i < rank; i++) {
        add_next(v, BACKWARD_ACTION, 0);
        add_next(v, BACKWARD_ACTION, 1);
    }
    for (int i = 0; i < behind; i++)
        add_backward_and_weight(v, 0);
    for (int chunk = 1; chunk >= 0; chunk--)
        while (v->next[chunk][WEIGHT_ACTION] < micros)
            add_next(v, WEIGHT_ACTION, chunk);
}

/* ZB-V: Qi et al., arXiv 2405.15362.  By simulation (tests/unit/test_schedule.c, 1 to 8 ranks, 1 to 32 micro-batches),
 * where F, B and W cost the same and messages nothing: no rank idles from 2 ranks - 1 micro-batches on, fewer leave 2
 * idle units for each that is missing; and a rank holds 2 min(ranks, micros) activations at most, as 1F1B's rank 0,
 * whose are twice as large. */
static void zb_v(Program *p)
{
    Vee v = { .p = p };
    const int least = 2 * p->s->ranks - 1, micros = p->s->micros < least ? least : p->s->micros;
    int *forward[2] = { &v.next[0][FORWARD_ACTION], &v.next[1][FORWARD_ACTION] };
    warm_up_vee(&v);
    while (*forward[1] < *forward[0] || *forward[0] < micros) {
        if (*forward[0] < micros)
            add_next(&v, FORWARD_ACTION, 0);
        add_backward_and_weight(&v, 0);
        add_next(&v, FORWARD_ACTION, 1);
        add_backward_and_weight(&v, 1);
    }
    drain_vee(&v, micros);
}

/* --- The generators, and their conditions --------------------------------------------------------- */

typedef struct {
    const char *name;
    void (*generate)(Program *);
    Placement placement;
    bool splits_backward;
    int fewest_chunks, most_chunks;
    bool multiple;
} Row;

static const Row rows[] = {
#define SCHEDULE(...) { __VA_ARGS__ },
#include "schedule.def"
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const Row *find_row(Arena *arena, const char *name, const char **why, const char **help)
{
    NearMiss near = { .name = name };
    const char *all = "";
    for (int i = 0; i < N_ROWS; i++) {
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
        offer(&near, rows[i].name);
        all = arena_text(arena, "%s%s%s", all, i ? ", " : "", rows[i].name);
    }
    *why = arena_text(arena, "there is no pipeline schedule '%s'", name);
    *help = near.best ? did_you_mean(arena, &near) : arena_text(arena, "schedules are %s", all);
    return NULL;
}

static bool takes_chunks(Arena *arena, const Row *row, int chunks, const char **why, const char **help)
{
    if (chunks >= row->fewest_chunks && chunks <= row->most_chunks)
        return true;
    int nearest = chunks < row->fewest_chunks ? row->fewest_chunks : row->most_chunks;
    *why = arena_text(arena, "%s has %s %d chunk%s on each rank, not %d", row->name,
                      row->fewest_chunks == row->most_chunks ? "exactly" : "at least", nearest, nearest == 1 ? "" : "s",
                      chunks);
    *help = arena_text(arena, "cut the model in %d chunk%s for each rank%s", nearest, nearest == 1 ? "" : "s",
                       chunks == 1 ? ", or choose 1f1b" : ", or choose interleaved");
    return false;
}

static bool takes_micros(Arena *arena, const Row *row, int ranks, int micros, const char **why, const char **help)
{
    int below = micros / ranks * ranks;
    if (!row->multiple || below == micros)
        return true;
    *why = arena_text(arena, "%s needs micro-batches in a multiple of its %d ranks, which %d is not", row->name, ranks,
                      micros);
    *help = below ? arena_text(arena, "%d and %d are the nearest that work", below, below + ranks)
                  : arena_text(arena, "%d is the nearest that works", ranks);
    return false;
}

bool check_counts(Arena *arena, int ranks, int chunks, int micros, const char **why, const char **help)
{
    if (ranks < 1 || chunks < 1 || micros < 1) {
        *why = arena_text(arena, "a pipeline of ranks = %d, chunks = %d, micro-batches = %d", ranks, chunks, micros);
        *help = "there is one or more of each";
        return false;
    }
    if (chunks > MOST_ACTIONS / ranks || micros > MOST_ACTIONS / ranks / chunks) {
        *why = arena_text(arena, "a pipeline of ranks = %d, chunks = %d, micro-batches = %d is too large", ranks,
                          chunks, micros);
        *help = arena_text(arena, "their product may be %d at most", MOST_ACTIONS);
        return false;
    }
    return true;
}

PipelineSchedule *make_schedule(Arena *arena, const char *name, int ranks, int chunks, int micros, const char **why,
                                const char **help)
{
    const Row *row = find_row(arena, name, why, help);
    if (!row || !check_counts(arena, ranks, chunks, micros, why, help) ||
        !takes_chunks(arena, row, chunks, why, help) || !takes_micros(arena, row, ranks, micros, why, help))
        return NULL;
    PipelineSchedule *s = NEW(arena, PipelineSchedule);
    *s = (PipelineSchedule){ .name = row->name, .ranks = ranks, .chunks = chunks, .micros = micros };
    s->placement = chunks == 1 ? LINEAR : row->placement;
    s->splits_backward = row->splits_backward;
    s->nactions = NEW_ARRAY(arena, int, ranks);
    s->action = NEW_ARRAY(arena, Action *, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        Program p = { .s = s, .rank = rank, .action = NEW_ARRAY(arena, Action, actions_of_rank(s)) };
        row->generate(&p);
        s->action[rank] = p.action;
        s->nactions[rank] = p.count;
    }
    return s;
}
