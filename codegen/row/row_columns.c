/* row_columns.c -- sums over rows, computed in parts by many threads.
 *
 * Without atomics, and in an order independent of the number of threads: either the sums are divided among threads (the
 * region's `own` dims), or the rows are divided into blocks, each block sums its rows, and the sums of blocks are added
 * in order.
 */
#include "row.h"
#include "templates.h"

#include <inttypes.h>

static char *number(const RowKernel *k, int64_t value) { return arena_text(&k->m->arena, "%" PRId64, value); }

static bool is_column_of(const RowKernel *k, int i, int region)
{
    return k->sink[i].region == region && k->sink[i].operand;
}

static const char *type_of(const Sink *sink) { return local_type(sink->node->value->type.dtype); }
static DimSet summed_into(const RowKernel *k, const Sink *sink)
{
    return sink->node->dims & ~k->region[sink->region].own;
}

static int64_t sum_count(const RowKernel *k, const Sink *sink) { return count_points(k, summed_into(k, sink)); }

/* Initialises sums: one in a local, or an array of them. */
static void write_start(const RowKernel *k, const Sink *sink, const char *array, FILE *out)
{
    Hole type = { "type", type_of(sink) }, name = { "name", sink->name }, start = { "start", start_of(sink->node) };
    if (!summed_into(k, sink)) {
        FILL(out, "$type $name = $start;\n", type, name, start);
        return;
    }
    fputs(array, out);
    Loop all = { .size = sum_count(k, sink), .index = &(Variable){ .name = "i" } };
    fputs(
        row_loop(k, "", &all, NULL, NULL, arena_text(&k->m->arena, "%s[i] = %s;\n", sink->name, start_of(sink->node))),
        out);
}

/* Loops over the dims that a column result keeps, around `body`. */
static char *result_loops(const RowKernel *k, const Sink *sink, const char *pragma, const char *body)
{
    const Region *region = &k->region[sink->region];
    char *text = arena_text(&k->m->arena, "%s", body);
    for (int i = region->nloops - 1; i >= 0; i--)
        if (region->loop[i].dims & summed_into(k, sink)) {
            text = row_loop(k, pragma, &region->loop[i], NULL, NULL, text);
            pragma = "";
        }
    return text;
}

static char *sum_index(const RowKernel *k, const Sink *sink)
{
    return dense_index(k, &k->region[sink->region], summed_into(k, sink));
}

/* --- Own sums, or one thread's -------------------------------------------------------------------------------------
 */

/* GCC 12 assumes an array on the stack to be aligned in the rest of a loop whose vectors do not divide it, but does not
 * align it: a store of 32 bytes then traps. */
static void write_own_iteration(RowKernel *k, int region, int nown, FILE *out)
{
    Region *r = &k->region[region];
    for (int i = 0; i < k->nsinks; i++)
        if (is_column_of(k, i, region))
            write_start(k, &k->sink[i],
                        arena_text(&k->m->arena, "_Alignas(64) %s %s[%" PRId64 "];\n", type_of(&k->sink[i]),
                                   k->sink[i].name, sum_count(k, &k->sink[i])),
                        out);
    Text row;
    open_text(&row);
    k->depth += r->nouter;
    write_row(k, region, NULL, NULL, row.out);
    k->depth -= r->nouter;
    char *text = close_text(&k->m->arena, &row);
    for (int i = r->nouter - 1; i >= nown; i--)
        text = row_loop(k, "", &r->loop[i], NULL, NULL, text);
    fputs(text, out);
    for (int i = 0; i < k->nsinks; i++) {
        if (!is_column_of(k, i, region))
            continue;
        Text store;
        open_text(&store);
        const char *sum = k->sink[i].name;
        if (summed_into(k, &k->sink[i]))
            sum = arena_text(&k->m->arena, "%s[%s]", sum, sum_index(k, &k->sink[i]));
        write_result(k, r, &k->sink[i], sum, store.out);
        fputs(result_loops(k, &k->sink[i], "", close_text(&k->m->arena, &store)), out);
    }
}

static void write_own(RowKernel *k, int region, FILE *out)
{
    Region *r = &k->region[region];
    int nown = 0;
    while (nown < r->nloops && r->loop[nown].dims & r->own)
        nown++;
    Text iteration;
    open_text(&iteration);
    write_own_iteration(k, region, nown, iteration.out);
    char *text = close_text(&k->m->arena, &iteration), *pragma = "#pragma omp parallel for";
    if (nown > 1)
        pragma = arena_text(&k->m->arena, "%s collapse(%d)", pragma, nown);
    for (int i = nown - 1; i >= 0; i--)
        text = row_loop(k, i == 0 && is_parallel(r) ? pragma : "", &r->loop[i], NULL, NULL, text);
    fputs(text, out);
}

/* --- Blocks --------------------------------------------------------------------------------------- */

/* The rows of one block: `low` to `high` of the only outer loop, or of a count over all of them. */
static char *block_rows(RowKernel *k, int region)
{
    Region *r = &k->region[region];
    int64_t iterations = 1;
    for (int i = 0; i < (r->nouter ? r->nouter : 1); i++)
        iterations *= r->loop[i].size;
    char *low = arena_text(&k->m->arena, "block * %" PRId64 " / %" PRId64, iterations, r->blocks);
    char *high = arena_text(&k->m->arena, "(block + 1) * %" PRId64 " / %" PRId64, iterations, r->blocks);
    Text row;
    open_text(&row);
    int64_t below = iterations;
    for (int i = 0; r->nouter > 1 && i < r->nouter; i++) {
        below /= r->loop[i].size;
        char *index = below > 1 ? arena_text(&k->m->arena, "iteration / %" PRId64, below) : "iteration";
        if (i > 0)
            index = arena_text(&k->m->arena, "%s %% %" PRId64, index, r->loop[i].size);
        FILL(row.out, "const int64_t $name = $index;\n", { "name", r->loop[i].index->name }, { "index", index });
    }
    k->depth += 1 + (r->nouter > 0);
    write_row(k, region, r->nouter ? NULL : low, r->nouter ? NULL : high, row.out);
    k->depth -= 1 + (r->nouter > 0);
    char *text = close_text(&k->m->arena, &row);
    Loop iteration = { .index = r->nouter == 1 ? r->loop[0].index : &(Variable){ .name = "iteration" } };
    return r->nouter ? row_loop(k, "", &iteration, low, high, text) : text;
}

/* Adds the sums of all blocks, in order. */
static void write_total(const RowKernel *k, const Sink *sink, FILE *out)
{
    const Region *r = &k->region[sink->region];
    const char *part = arena_text(&k->m->arena, "%s[block]", sink->parts);
    if (sink->at >= 0)
        part = arena_text(&k->m->arena, "%s[block * %" PRId64 " + %s]", sink->parts, sum_count(k, sink),
                          sum_index(k, sink));
    Text body;
    open_text(&body);
    FILL(body.out, "$type $name = $start;\n", { "type", type_of(sink) }, { "name", sink->name },
         { "start", start_of(sink->node) });
    Loop blocks = { .index = &(Variable){ .name = "block" }, .size = r->blocks };
    char *add = accumulation(k, sink->node, sink->name, part);
    if (info(sink->node->op)->over != SUM)
        add = arena_text(&k->m->arena, "const %s part = %s;\n%s", type_of(sink), part,
                         accumulation(k, sink->node, sink->name, "part"));
    fputs(row_loop(k, "", &blocks, NULL, NULL, add), body.out);
    write_result(k, r, sink, sink->name, body.out);
    char *text = close_text(&k->m->arena, &body);
    bool is_long = sum_count(k, sink) * r->blocks >= SERIAL_POINTS * 16;
    fputs(result_loops(k, sink, is_long ? "#pragma omp parallel for" : "", text), out);
}

static void write_blocks(RowKernel *k, int region, FILE *out)
{
    Region *r = &k->region[region];
    Text parts, starts, kept, totals;
    open_text(&parts);
    open_text(&starts);
    open_text(&kept);
    open_text(&totals);
    for (int i = 0; i < k->nsinks; i++) {
        const Sink *sink = &k->sink[i];
        if (!is_column_of(k, i, region))
            continue;
        Hole type = { "type", type_of(sink) }, name = { "name", sink->name }, part = { "parts", sink->parts };
        if (sink->at < 0) {
            FILL(parts.out, "$type $parts[$blocks];\n", type, part, { "blocks", number(k, r->blocks) });
            write_start(k, sink, NULL, starts.out);
            FILL(kept.out, "$parts[block] = $name;\n", name, part);
        } else {
            const char *memory = sink->node->value->type.dtype == I32 ? "(int32_t *)scratch" : "scratch";
            if (sink->at)
                memory = arena_text(&k->m->arena, "%s + %" PRId64, memory, sink->at);
            FILL(parts.out, "$type *const $parts = $memory;\n", type, part, { "memory", memory });
            char *array = arena_text(&k->m->arena, "%s *const %s = %s + block * %" PRId64 ";\n", type_of(sink),
                                     sink->name, sink->parts, sum_count(k, sink));
            write_start(k, sink, array, starts.out);
        }
        write_total(k, sink, totals.out);
    }
    k->depth++;
    char *rows = block_rows(k, region);
    k->depth--;
    FILL(out, row_blocks_template, { "parts", close_text(&k->m->arena, &parts) },
         { "pragma", r->blocks > 1 ? "#pragma omp parallel for" : "" }, { "blocks", number(k, r->blocks) },
         { "starts", close_text(&k->m->arena, &starts) }, { "rows", rows }, { "keep", close_text(&k->m->arena, &kept) },
         { "totals", close_text(&k->m->arena, &totals) });
}

void write_columns(RowKernel *k, int region, FILE *out)
{
    for (int i = 0; i < k->nsinks; i++)
        if (is_column_of(k, i, region))
            name_sums(k, &k->sink[i]);
    if (k->region[region].blocks <= 1)
        write_own(k, region, out);
    else
        write_blocks(k, region, out);
}
