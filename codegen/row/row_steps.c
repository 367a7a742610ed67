/* row_steps.c -- the loops of a region in C, and who runs them.
 *
 * Sums over rows are without atomics, and in an order independent of the number of threads: either the sums are divided
 * among threads (the region's `own` dims), or the rows are divided into blocks, each block sums its rows, and the sums
 * of blocks are added in order.
 */
#include "row.h"

#include <inttypes.h>

DimSet summed_into(const RowKernel *k, const Sink *column)
{
    return column->node->dims & ~k->region[column->region].own;
}

int64_t sum_count(const RowKernel *k, const Sink *column) { return count_points(k, summed_into(k, column)); }

/* A large region is worth waking the threads for. */
static Runner runner_of(int64_t points) { return points >= SERIAL_POINTS ? BY_THREADS : BY_ONE; }

static void add_row_of(Steps *to, int region, const char *low, const char *high)
{
    RowKernel *k = to->k;
    bool *has = NEW_ARRAY(&k->m->arena, bool, k->nsinks + 1);
    for (int i = 0; i < k->nsinks; i++)
        has[i] = k->sink[i].region == region;
    add_row(to, has, (Step){ .dims = k->region[region].inner, .runner = BY_VECTORS, .low = low, .high = high });
}

/* The same step for each column of a region; a result, in loops over its elements. */
static void add_columns(Steps *to, int region, StepKind kind)
{
    RowKernel *k = to->k;
    for (Sink *sink = k->sink; sink < k->sink + k->nsinks; sink++) {
        const Step step = { .kind = kind, .node = sink->node, .sink = sink };
        if (sink->region != region || !sink->operand)
            continue;
        if (kind != STEP_STORE && kind != STEP_COMBINE) {
            add_step(to, step);
            continue;
        }
        const int64_t sums = sum_count(k, sink) * k->region[region].blocks;
        Steps elements = add_loop(to, (Step){ .dims = summed_into(k, sink), .runner = runner_of(sums / 16) });
        add_step(&elements, step);
    }
}

static void add_own(Steps *to, int region)
{
    const Region *r = &to->k->region[region];
    Steps own = add_loop(to, (Step){ .dims = r->own, .runner = runner_of(r->points) });
    add_columns(&own, region, STEP_START);
    Steps rows = add_loop(&own, (Step){ .dims = r->dims & ~r->inner & ~r->own });
    add_row_of(&rows, region, NULL, NULL);
    add_columns(&own, region, STEP_STORE);
}

/* The rows of one block: `low` to `high` of the only outer loop, or of a count over all of them; without outer loops, a
 * part of the only row. */
static void add_blocks(Steps *to, int region)
{
    const Region *r = &to->k->region[region];
    Arena *arena = &to->k->m->arena;
    int64_t rows = 1;
    for (int i = 0; i < (r->nouter ? r->nouter : 1); i++)
        rows *= r->loop[i].size;
    const char *low = arena_text(arena, "block * %" PRId64 " / %" PRId64, rows, r->blocks);
    const char *high = arena_text(arena, "(block + 1) * %" PRId64 " / %" PRId64, rows, r->blocks);
    add_columns(to, region, STEP_ROOM);
    Steps block = add_loop(to, (Step){ .runner = BY_BLOCKS });
    add_columns(&block, region, STEP_START);
    Steps within =
        add_loop(&block, (Step){ .dims = r->dims & ~r->inner, .runner = BY_ITS_BLOCK, .low = low, .high = high });
    add_row_of(&within, region, r->nouter ? NULL : low, r->nouter ? NULL : high);
    add_columns(&block, region, STEP_KEEP);
    add_columns(to, region, STEP_COMBINE);
}

/* One loop over everything is in chunks independent of the number of threads: the last elements of a vectorised loop
 * may be rounded differently. */
void add_region(Steps *to, int region)
{
    RowKernel *k = to->k;
    const Region *r = &k->region[region];
    const Runner runner = runner_of(r->points);
    const bool is_flat = r->nloops == 1 && r->nouter == 0 && !k->by_rows && runner == BY_THREADS;
    for (int i = 0; i < k->nsinks; i++)
        if (k->sink[i].region == region && k->sink[i].operand)
            name_sums(k, &k->sink[i]);
    if (r->has_columns && r->blocks > 1) {
        add_blocks(to, region);
    } else if (r->has_columns) {
        add_own(to, region);
    } else {
        Steps rows =
            add_loop(to, (Step){ .dims = is_flat ? 0 : r->dims & ~r->inner, .runner = is_flat ? BY_CHUNKS : runner });
        add_row_of(&rows, region, is_flat ? "begin" : NULL, is_flat ? "end" : NULL);
    }
}
