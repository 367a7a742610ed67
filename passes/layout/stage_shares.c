/* stage_shares.c -- the number of copies of repeats that each stage of a pipeline runs: see stage_shares.h.
 *
 * Of several repeats, the least bound that the FLOPs of all stages can keep is found by bisection: whether they can is
 * seen from the last stage on, each of which takes as much as it may.  Then, from the first one on, each stage takes
 * about the average of those that are left, as far as these can keep the bound, too. */
#include "stage_shares.h"

#include <math.h>

typedef struct {
    const double *before; /* FLOPs before each copy; after the last one: of all */
    int64_t count;
    int stages;
    int64_t *first; /* by stage: the first copy that it can have, if it and all later stages keep the bound */
} Share;

static double load(const Share *s, int64_t from, int64_t to) { return s->before[to] - s->before[from]; }

static bool can_keep(const Share *s, double bound)
{
    int64_t end = s->count;
    for (int stage = s->stages - 1; stage >= 0; stage--) {
        int64_t first = end;
        while (first > stage && load(s, first - 1, end) <= bound) /* earlier stages have a copy each */
            first--;
        if (first == end)
            return false;
        s->first[stage] = end = first;
    }
    return end == 0;
}

static double least_bound(const Share *s)
{
    enum { HALVINGS = 60 };
    double below = 0, above = load(s, 0, s->count);
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (below + above) / 2;
        *(can_keep(s, middle) ? &above : &below) = middle;
    }
    return above * (1 + 1e-12);
}

void share_copies(Arena *arena, const double *flops, int64_t count, int stages, int64_t *stage)
{
    double *before = NEW_ARRAY(arena, double, count + 1);
    const Share s = { before, count, stages, NEW_ARRAY(arena, int64_t, stages + 1) };
    for (int64_t i = 0; i < count; i++)
        before[i + 1] = before[i] + flops[i];
    const double bound = least_bound(&s);
    can_keep(&s, bound);
    s.first[stages] = count;
    for (int64_t i = 0, from = 0; i < stages; from += stage[i++]) {
        const double mean = load(&s, from, count) / (double)(stages - i);
        int64_t end = s.first[i + 1] > from ? s.first[i + 1] : from + 1;
        while (end + stages - i - 1 < count && load(&s, from, end + 1) <= bound &&
               fabs(load(&s, from, end + 1) - mean) < fabs(load(&s, from, end) - mean))
            end++;
        stage[i] = end - from;
    }
}

static double load_of_copy(const RepeatLoads *loads, int repeat)
{
    return loads->copy[repeat] > 0 ? loads->copy[repeat] : 1;
}

void share_repeats(Arena *arena, const RepeatLoads *loads, int stages, int64_t *stage)
{
    const int64_t all = all_copies(loads);
    double *flops = NEW_ARRAY(arena, double, all);
    int64_t at = 0;
    flops[0] = loads->beside[0];
    for (int i = 0; i < loads->repeats; i++) {
        for (int64_t copy = 0; copy < loads->copies[i]; copy++)
            flops[at++] += load_of_copy(loads, i);
        flops[at - 1] += loads->beside[i + 1];
    }
    share_copies(arena, flops, all, stages, stage);
}

/* --- One repeat, in chunks ------------------------------------------------------------------------- */

/* FLOPs of a rank in a chunk beside its copies. */
static double beside_copies(const ChunkLoads *c, int chunk, int rank)
{
    const int last = c->count - 1;
    const int begin = c->reversed[0] ? c->ranks - 1 : 0, end = c->reversed[last] ? 0 : c->ranks - 1;
    return (chunk == 0 && rank == begin ? c->loads->beside[0] : 0) +
           (chunk == last && rank == end ? c->loads->beside[1] : 0);
}

/* The rank with the least load of those that may have one more copy; of equally good ones the later stage, which keeps
 * fewer micro-batches. */
static int least_loaded(int ranks, const double *load, const int64_t *room, bool reversed)
{
    int least = -1;
    for (int i = 0; i < ranks; i++) {
        const int rank = reversed ? ranks - 1 - i : i;
        if (room[rank] > 0 && (least < 0 || load[rank] <= load[least]))
            least = rank;
    }
    return least;
}

/* The copies of each rank in all chunks: one in each, at least. */
static void share_totals(const ChunkLoads *c, int64_t *total)
{
    const double copy = load_of_copy(c->loads, 0);
    double sum[MAX_SET_RANKS] = { 0 };
    int64_t room[MAX_SET_RANKS], left = 0;
    for (int chunk = 0; chunk < c->count; chunk++)
        left += c->copies[chunk] - c->ranks;
    for (int rank = 0; rank < c->ranks; rank++) {
        room[rank] = INT64_MAX;
        total[rank] = c->count;
        sum[rank] = copy * c->count;
        for (int chunk = 0; chunk < c->count; chunk++)
            sum[rank] += beside_copies(c, chunk, rank);
    }
    for (; left > 0; left--) {
        const int rank = least_loaded(c->ranks, sum, room, c->reversed[0]);
        total[rank]++;
        sum[rank] += copy;
    }
}

/* The copies of each rank in one chunk, so that its stages take equally long, of the `total` copies of the ranks, which
 * keep one for each chunk before. */
static void share_chunk(const ChunkLoads *c, int chunk, int64_t *total, int64_t *part)
{
    const double copy = load_of_copy(c->loads, 0);
    double sum[MAX_SET_RANKS];
    int64_t room[MAX_SET_RANKS];
    for (int rank = 0; rank < c->ranks; rank++) {
        part[rank] = 1;
        room[rank] = total[rank] - 1 - chunk;
        sum[rank] = copy + beside_copies(c, chunk, rank);
    }
    for (int64_t left = c->copies[chunk] - c->ranks; left > 0; left--) {
        const int rank = least_loaded(c->ranks, sum, room, c->reversed[chunk]);
        part[rank]++;
        room[rank]--;
        sum[rank] += copy;
    }
    for (int rank = 0; rank < c->ranks; rank++)
        total[rank] -= part[rank];
}

void share_chunks(const ChunkLoads *c, int64_t part[][MAX_SET_RANKS])
{
    int64_t total[MAX_SET_RANKS];
    share_totals(c, total);
    for (int chunk = c->count - 1; chunk >= 0; chunk--)
        share_chunk(c, chunk, total, part[chunk]);
}
