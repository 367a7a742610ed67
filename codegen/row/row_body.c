/* row_body.c -- the computation of one row: phases, the loops of each phase, their statements. */
#include "row.h"
#include "templates.h"

#include <inttypes.h>

/* One loop nest over a part of the row, in one phase, and where its text goes. */
typedef struct {
    Nest nest;
    const Region *region;
    FILE *out;
} RowLoops;

/* --- Statements ----------------------------------------------------------------------------------- */

/* Adds to the sums of a column: an array with the dims that the result keeps, or one sum. */
static void write_column(const RowLoops *r, const Sink *sink, const char *text)
{
    RowKernel *k = r->nest.k;
    const Region *region = r->region;
    DimSet kept = sink->node->dims & ~region->own;
    if (!kept) {
        fputs(accumulation(k, sink->node, sink->name, text), r->out);
        return;
    }
    const char *into = arena_text(&k->m->arena, "%s[%s]", sink->name, dense_index(k, region, kept));
    if (info(sink->node->op)->over != SUM) {
        const char *now = new_identifier(&k->names, arena_text(&k->m->arena, "%s_was", sink->name));
        write_local(k, local_type(sink->node->value->type.dtype), now, into, r->out);
        FILL(r->out, "$into = $text;\n", { "into", into }, { "text", chosen_text(k, sink->node, now, text) });
        return;
    }
    fputs(accumulation(k, sink->node, into, text), r->out);
}

static void write_kept(const RowLoops *r, const Node *node)
{
    const RowKernel *k = r->nest.k;
    write_store(k, F32, node->kept_in, dense_index(k, r->region, r->nest.dims), node->text, r->out);
}

/* Stores are last: a result may have the storage of a parameter. */
static void write_sinks(const RowLoops *r)
{
    RowKernel *k = r->nest.k;
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(&r->nest, i) && k->sink[i].operand)
            write_column(r, &k->sink[i], k->sink[i].operand->text);
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(&r->nest, i) && !k->sink[i].operand)
            write_result(k, r->region, &k->sink[i], stored_text(k, &k->sink[i]), r->out);
}

static void write_statements(const RowLoops *r)
{
    RowKernel *k = r->nest.k;
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i].uses && is_in_loops(&r->nest, &k->node[i]))
            write_node(k, r->region, &k->node[i], r->out);
    for (int i = 0; i < k->nnodes; i++)
        if (is_summed(&r->nest, &k->node[i])) {
            const Node *operand = find_node(k, arg(k->node[i].op, 0));
            fputs(accumulation(k, &k->node[i], k->node[i].name, operand->text), r->out);
        }
    for (int i = 0; i < k->nnodes; i++)
        if (is_first_kept(&r->nest, &k->node[i]))
            write_kept(r, &k->node[i]);
    write_sinks(r);
}

/* --- Loops ---------------------------------------------------------------------------------------- */

/* " reduction(+ : a, b)" for the scalars that the loop reduces with this role. */
static char *clause(const RowLoops *r, Role role)
{
    RowKernel *k = r->nest.k;
    char *list = "";
    for (int i = 0; i < k->nnodes; i++)
        if (is_summed(&r->nest, &k->node[i]) && info(k->node[i].op)->over == role)
            list = arena_text(&k->m->arena, "%s%s%s", list, *list ? ", " : "", k->node[i].name);
    for (int i = 0; i < k->nsinks; i++) {
        const Sink *sink = &k->sink[i];
        bool is_one = sink->operand && !(sink->node->dims & ~r->region->own);
        if (is_one && is_drained(&r->nest, i) && info(sink->node->op)->over == role)
            list = arena_text(&k->m->arena, "%s%s%s", list, *list ? ", " : "", sink->name);
    }
    if (!*list)
        return "";
    return arena_text(&k->m->arena, " reduction(%s : %s)", role == SUM ? "+" : role == MAX ? "max" : "min", list);
}

/* A loop over dims that a column does not keep, into an array of columns: it adds repeatedly to one element. */
static bool is_in_order(const RowLoops *r)
{
    const Region *region = r->region;
    DimSet innermost = 0;
    for (int i = region->nouter; i < region->nloops; i++)
        if (region->loop[i].dims & r->nest.dims)
            innermost = region->loop[i].dims;
    for (int i = 0; i < r->nest.k->nsinks; i++) {
        const Sink *sink = &r->nest.k->sink[i];
        if (sink->operand && is_drained(&r->nest, i) && sink->node->dims & ~region->own &&
            !(sink->node->dims & innermost))
            return true;
    }
    return false;
}

static char *simd_pragma(const RowLoops *r)
{
    if (is_in_order(r))
        return "";
    return arena_text(&r->nest.k->m->arena, "#pragma omp simd%s%s%s", clause(r, SUM), clause(r, MAX), clause(r, MIN));
}

/* A long sum is one of sums of chunks: each sum that the pragma names begins again in each of them.  If all elements
 * were added to one number, those of a kind would all be rounded in the same direction once it is large (Higham, The
 * accuracy of floating point summation, 1993). */
static char *sum_in_chunks(const RowLoops *r, const Loop *loop, const char *low, const char *high, const char *pragma,
                           const char *body)
{
    RowKernel *k = r->nest.k;
    const char *size = arena_text(&k->m->arena, "%" PRId64, loop->size);
    Text text;
    open_text(&text);
    FILL(text.out, row_chunks_template, { "low", low ? low : "0" }, { "high", high ? high : size },
         { "step", arena_text(&k->m->arena, "%d", SUM_CHUNK) },
         { "body", row_loop(k, pragma, loop, "begin", "end", body) });
    return close_text(&k->m->arena, &text);
}

/* Of a loop that has a pragma: it is not in order. */
static bool is_long_sum(const RowLoops *r, const Loop *loop, const char *low)
{
    const int64_t parts = low && r->region->blocks > 1 ? r->region->blocks : 1;
    return loop->size / parts > SUM_CHUNK && *clause(r, SUM);
}

static int count_loops(const RowLoops *r)
{
    int count = 0;
    for (int i = r->region->nouter; i < r->region->nloops; i++)
        count += (r->region->loop[i].dims & r->nest.dims) != 0;
    return count;
}

static void write_nest(RowLoops *r, const char *low, const char *high)
{
    RowKernel *k = r->nest.k;
    const Region *region = r->region;
    FILE *out = r->out;
    count_all_uses(&r->nest);
    write_accumulators(&r->nest, out);
    Text body;
    open_text(&body);
    r->out = body.out;
    k->depth += count_loops(r);
    write_statements(r);
    k->depth -= count_loops(r);
    char *text = close_text(&k->m->arena, &body);
    const char *pragma = simd_pragma(r);
    for (int i = region->nloops - 1; i >= region->nouter; i--)
        if (region->loop[i].dims & r->nest.dims) {
            const Loop *loop = &region->loop[i];
            const bool in_chunks = *pragma && is_long_sum(r, loop, low);
            text = in_chunks ? sum_in_chunks(r, loop, low, high, pragma, text)
                             : row_loop(k, pragma, loop, low, high, text);
            pragma = "";
        }
    fputs(text, out);
    r->out = out;
}

/* The nests of one phase: one for each set of dims of its values. */
static void write_phase(RowLoops *r, int phase, const char *low, const char *high)
{
    r->nest.phase = phase;
    for (DimSet dims = r->nest.inner; dims; dims = (dims - 1) & r->nest.inner) {
        r->nest.dims = dims;
        if (is_needed(&r->nest))
            write_nest(r, low, high);
    }
}

static void write_row_values(const RowLoops *r, int phase)
{
    RowKernel *k = r->nest.k;
    for (int i = 0; i < k->nnodes; i++) {
        Node *node = &k->node[i];
        if (!node->is_wanted || is_in_loops(&r->nest, node) || node->phase != phase || is_scalar(node))
            continue;
        if (node->is_reduction)
            node->text = node->name; /* summed by the loop just written */
        else
            write_node(k, r->region, node, r->out);
    }
}

static bool *sinks_in(const RowKernel *k, int region)
{
    bool *has = NEW_ARRAY(&k->m->arena, bool, k->nsinks + 1);
    for (int i = 0; i < k->nsinks; i++)
        has[i] = k->sink[i].region == region;
    return has;
}

void write_row(RowKernel *k, int region, const char *low, const char *high, FILE *out)
{
    const Region *own = &k->region[region];
    const bool *has = sinks_in(k, region);
    RowLoops r = { .nest = { .k = k, .has = has, .inner = own->inner }, .region = own, .out = out };
    mark_wanted(k, has);
    const int64_t points = count_points(k, own->inner);
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i].kept_from >= 0 && k->node[i].kept_array < 0 && k->node[i].is_wanted)
            FILL(out, "float $array[$points];\n", { "array", k->node[i].kept_in },
                 { "points", arena_text(&k->m->arena, "%" PRId64, points) });
    write_row_values(&r, 0);
    for (int phase = 0; phase < k->nphases; phase++) {
        write_phase(&r, phase, low, high);
        write_row_values(&r, phase + 1);
    }
    r.nest.dims = 0;
    r.nest.all_phases = true;
    write_sinks(&r);
}
