/* share_copies.c -- cuts the copies of several repeats in consecutive ranges, one for each stage.
 *
 * The least bound that the FLOPs of all stages can keep is found by bisection: whether they can is seen from the last
 * stage on, each of which takes as much as it may.  Then, from the first one on, each stage takes about the average of
 * those that are left, as far as these can keep the bound, too. */
#include "share_copies.h"

#include "ir.h"

#include <math.h>
#include <stdlib.h>

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
