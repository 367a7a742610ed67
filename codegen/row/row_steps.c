/* row_steps.c -- the loops of a region in C, and who runs them.
 *
 * Sums over rows are without atomics, and in an order independent of the number of threads: either the sums are divided
 * among threads (the region's `own` dims), or the rows are divided into blocks, each block sums its rows, and the sums
 * of blocks are added in order.
 */
#include "row.h"

#include <inttypes.h>
#include <string.h>

/* --- Sums over rows ------------------------------------------------------------------------------- */

static bool is_column_of(const Sink *sink, int region) { return sink->region == region && sink->operand; }

/* Dims that all column sums of a region keep, except its innermost: divided among threads, so that each sum belongs to
 * one thread.  0 if that would leave threads idle. */
static DimSet own_dims(const RowKernel *k, int region)
{
    const Region *r = &k->region[region];
    DimSet kept = r->dims & ~(1u << r->order[r->norder - 1]);
    for (int i = 0; i < k->nsinks; i++)
        if (is_column_of(&k->sink[i], region))
            kept &= k->sink[i].node->dims;
    for (int i = 0; i < k->nsinks; i++)
        if (is_column_of(&k->sink[i], region) && count_points(k, k->sink[i].node->dims & ~kept) > ROW_BUFFER)
            return 0;
    return !k->by_rows && count_points(k, kept) >= 32 ? kept : 0;
}

/* Moves dims of `own` to the front. */
static void order_own(Region *r)
{
    int sorted[MAX_RANK], count = 0;
    for (int own = 1; own >= 0; own--)
        for (int i = 0; i < r->norder; i++)
            if ((int)(r->own >> r->order[i] & 1) == own)
                sorted[count++] = r->order[i];
    memcpy(r->order, sorted, sizeof sorted);
}

static int64_t block_count(int64_t points, int64_t iterations)
{
    int64_t blocks = points / 32768;
    blocks = blocks < iterations / 4 ? blocks : iterations / 4;
    blocks = blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS;
    return blocks > 1 ? blocks : 1;
}

/* The blocks of a region, and the storage of their sums in scratch. */
static void plan_region(RowKernel *k, int region)
{
    Region *r = &k->region[region];
    r->own = own_dims(k, region);
    order_own(r);
    if (r->own)
        return;
    int64_t most = 1;
    for (int i = 0; i < k->nsinks; i++)
        if (is_column_of(&k->sink[i], region)) {
            int64_t sums = count_points(k, k->sink[i].node->dims);
            most = sums > most ? sums : most;
        }
    r->blocks = block_count(r->points, r->points / most);
    if (r->blocks == 1 && most <= ROW_BUFFER)
        return; /* in locals of one thread */
    r->blocks = r->blocks > 1 ? r->blocks : 2;
    for (int i = 0; i < k->nsinks; i++)
        if (is_column_of(&k->sink[i], region) && k->sink[i].node->dims) {
            int64_t sums = r->blocks * count_points(k, k->sink[i].node->dims);
            k->sink[i].at = k->scratch / 4;
            k->scratch += (sums + 15) / 16 * 64; /* each begins on a cache line */
        }
}

void plan_columns(RowKernel *k)
{
    for (int i = 0; i < k->nregions; i++)
        if (k->region[i].has_columns)
            plan_region(k, i);
}

int64_t row_kernel_scratch(Module *m, const Func *kernel)
{
    RowKernel *k = plan_row_kernel(m, kernel, NULL);
    plan_columns(k);
    return k->scratch;
}

DimSet summed_into(const RowKernel *k, const Sink *column)
{
    return column->node->dims & ~k->region[column->region].own;
}

int64_t sum_count(const RowKernel *k, const Sink *column) { return count_points(k, summed_into(k, column)); }

/* --- Loops ---------------------------------------------------------------------------------------- */

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
        if (!is_column_of(sink, region))
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
        if (is_column_of(&k->sink[i], region))
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
