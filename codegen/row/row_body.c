/* row_body.c -- the computation of one row: phases, the loops of each phase, their statements. */
#include "row.h"
#include "templates.h"

#include <inttypes.h>
#include <string.h>

static bool is_scalar(const Node *node) { return !node->dims && !node->phase && !node->is_column; }
static bool is_in_row(const Region *region, const Node *node) { return node->dims & region->inner; }
static Node *source_of(const Sink *sink) { return sink->operand ? sink->operand : sink->node; }

/* Only values that a sink needs are computed. */
static void mark_wanted(RowKernel *k, int region)
{
    for (int i = 0; i < k->nnodes; i++)
        k->node[i].is_wanted = false;
    for (int s = 0; s < k->nsinks; s++)
        if (region < 0 || k->sink[s].region == region)
            source_of(&k->sink[s])->is_wanted = true;
    mark_operands(k);
}

void write_scalars(RowKernel *k, FILE *out)
{
    static const Region nowhere = { 0 };
    mark_wanted(k, -1);
    for (int i = 0; i < k->nnodes; i++)
        if (is_scalar(&k->node[i]) && k->node[i].is_wanted)
            write_node(k, &nowhere, &k->node[i], out);
}

/* --- Values to compute in a loop ----------------------------------------------------------------- */

/* One loop nest over a part of the row, in one phase. */
typedef struct {
    RowKernel *k;
    int region, phase;
    DimSet dims;
    bool in_order; /* sums go through memory: not to be vectorised */
    FILE *out;
} Nest;

static const Region *region_of(const Nest *n) { return &n->k->region[n->region]; }

static bool is_accumulated(const Nest *n, const Node *node)
{
    return node->is_reduction && node->is_wanted && node->phase == n->phase + 1 &&
           (find_node(n->k, arg(node->op, 0))->dims & region_of(n)->inner) == n->dims;
}

static bool is_drained(const Nest *n, const Sink *sink)
{
    const Node *source = source_of(sink);
    bool anywhere = !n->dims || sink->phase == n->phase;
    return sink->region == n->region && anywhere && (source->dims & region_of(n)->inner) == n->dims;
}

static bool is_first_kept(const Nest *n, const Node *node)
{
    return node->kept_from == n->phase && node->kept_array < 0 && node->is_wanted &&
           (node->dims & region_of(n)->inner) == n->dims;
}

/* Counts the uses of each value in the text of the loop; 0: not computed. */
static void count_all_uses(const Nest *n)
{
    RowKernel *k = n->k;
    for (int i = 0; i < k->nnodes; i++)
        k->node[i].uses = 0;
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(n, &k->sink[i]))
            find_node(k, source_of(&k->sink[i])->value)->uses +=
                k->sink[i].operand ? count_uses(k->sink[i].node->op, 0) : uses_of_stored(k, k->sink[i].node);
    for (int i = k->nnodes - 1; i >= 0; i--) {
        Node *node = &k->node[i];
        bool accumulated = is_accumulated(n, node);
        node->uses += is_first_kept(n, node);
        node->is_loaded = node->kept_from >= 0 && node->kept_from < n->phase;
        if (!node->op || node->is_loaded || (!accumulated && (!node->uses || !is_in_row(region_of(n), node))))
            continue;
        for (int j = 0; j < node->op->args.count; j++)
            find_node(k, arg(node->op, j))->uses += is_copy(node) ? node->uses : count_uses(node->op, j);
    }
}

/* --- Statements ----------------------------------------------------------------------------------- */

/* Adds to the sums of a column: an array with the dims that the result keeps, or one sum. */
static void write_column(Nest *n, const Sink *sink, const char *text)
{
    RowKernel *k = n->k;
    const Region *region = region_of(n);
    DimSet kept = sink->node->dims & ~region->own;
    int64_t stride[MAX_RANK] = { 0 };
    dense_strides(k, region, kept, stride);
    if (!kept) {
        fputs(accumulation(k, sink->node, sink->name, text), n->out);
        return;
    }
    const char *into = arena_text(&k->m->arena, "%s[%s]", sink->name, index_text(k, region, kept, stride));
    if (info(sink->node->op)->over != SUM) {
        const char *now = new_identifier(&k->names, arena_text(&k->m->arena, "%s_was", sink->name));
        write_local(k, local_type(sink->node->value->type.dtype), now, into, n->out);
        FILL(n->out, "$into = $text;\n", { "into", into }, { "text", chosen_text(k, sink->node, now, text) });
        return;
    }
    fputs(accumulation(k, sink->node, into, text), n->out);
}

static void write_result(Nest *n, const Sink *sink)
{
    const Array *array = &n->k->array[n->k->f->params.count + sink->result];
    char *index = index_text(n->k, region_of(n), array->dims, array->stride);
    const char *text = sink->node->text;
    if (is_constant(sink->node->op))
        text = c_number(n->k->m, sink->node->op->attrs.value, !is_float(sink->node->value->type.dtype));
    write_store(n->k, array->value->type.dtype, array->name, index, text, n->out);
}

static void write_kept(Nest *n, const Node *node)
{
    int64_t stride[MAX_RANK] = { 0 };
    dense_strides(n->k, region_of(n), n->dims, stride);
    write_store(n->k, F32, node->kept_in, index_text(n->k, region_of(n), n->dims, stride), node->text, n->out);
}

/* Stores are last: a result may have the storage of a parameter. */
static void write_statements(Nest *n)
{
    RowKernel *k = n->k;
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i].uses && is_in_row(region_of(n), &k->node[i]))
            write_node(k, region_of(n), &k->node[i], n->out);
    for (int i = 0; i < k->nnodes; i++)
        if (is_accumulated(n, &k->node[i])) {
            const Node *operand = find_node(k, arg(k->node[i].op, 0));
            fputs(accumulation(k, &k->node[i], k->node[i].name, operand->text), n->out);
        }
    for (int i = 0; i < k->nnodes; i++)
        if (is_first_kept(n, &k->node[i]))
            write_kept(n, &k->node[i]);
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(n, &k->sink[i]) && k->sink[i].operand)
            write_column(n, &k->sink[i], k->sink[i].operand->text);
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(n, &k->sink[i]) && !k->sink[i].operand)
            write_result(n, &k->sink[i]);
}

/* --- Loops ---------------------------------------------------------------------------------------- */

/* " reduction(+ : a, b)" for the scalars that the loop reduces with this role. */
static char *clause(const Nest *n, Role role)
{
    RowKernel *k = n->k;
    char *list = "";
    for (int i = 0; i < k->nnodes; i++)
        if (is_accumulated(n, &k->node[i]) && info(k->node[i].op)->over == role)
            list = arena_text(&k->m->arena, "%s%s%s", list, *list ? ", " : "", k->node[i].name);
    for (int i = 0; i < k->nsinks; i++) {
        const Sink *sink = &k->sink[i];
        bool is_one = sink->operand && !(sink->node->dims & ~region_of(n)->own);
        if (is_one && is_drained(n, sink) && info(sink->node->op)->over == role)
            list = arena_text(&k->m->arena, "%s%s%s", list, *list ? ", " : "", sink->name);
    }
    if (!*list)
        return "";
    return arena_text(&k->m->arena, " reduction(%s : %s)", role == SUM ? "+" : role == MAX ? "max" : "min", list);
}

/* A loop over dims that a column does not keep, into an array of columns: it adds repeatedly to one element. */
static bool is_in_order(const Nest *n)
{
    const Region *region = region_of(n);
    DimSet innermost = 0;
    for (int i = region->nouter; i < region->nloops; i++)
        if (region->loop[i].dims & n->dims)
            innermost = region->loop[i].dims;
    for (int i = 0; i < n->k->nsinks; i++) {
        const Sink *sink = &n->k->sink[i];
        if (sink->operand && is_drained(n, sink) && sink->node->dims & ~region->own && !(sink->node->dims & innermost))
            return true;
    }
    return false;
}

static char *simd_pragma(const Nest *n)
{
    if (is_in_order(n))
        return "";
    return arena_text(&n->k->m->arena, "#pragma omp simd%s%s%s", clause(n, SUM), clause(n, MAX), clause(n, MIN));
}

/* A long sum is one of sums of chunks: each sum that the pragma names begins again in each of them.  If all elements
 * were added to one number, those of a kind would all be rounded in the same direction once it is large (Higham, The
 * accuracy of floating point summation, 1993). */
static char *sum_in_chunks(const Nest *n, const Loop *loop, const char *low, const char *high, const char *pragma,
                           const char *body)
{
    RowKernel *k = n->k;
    const char *size = arena_text(&k->m->arena, "%" PRId64, loop->size);
    Text text;
    open_text(&text);
    FILL(text.out, row_chunks_template, { "low", low ? low : "0" }, { "high", high ? high : size },
         { "step", arena_text(&k->m->arena, "%d", SUM_CHUNK) },
         { "body", row_loop(k, pragma, loop, "begin", "end", body) });
    return close_text(&k->m->arena, &text);
}

/* Of a loop that has a pragma: it is not in order. */
static bool is_long_sum(const Nest *n, const Loop *loop, const char *low)
{
    const int64_t parts = low && region_of(n)->blocks > 1 ? region_of(n)->blocks : 1;
    return loop->size / parts > SUM_CHUNK && *clause(n, SUM);
}

static int count_loops(const Nest *n)
{
    int count = 0;
    for (int i = region_of(n)->nouter; i < region_of(n)->nloops; i++)
        count += (region_of(n)->loop[i].dims & n->dims) != 0;
    return count;
}

static void write_accumulators(const Nest *n)
{
    for (int i = 0; i < n->k->nnodes; i++) {
        const Node *node = &n->k->node[i];
        if (is_accumulated(n, node))
            FILL(n->out, "$type $name = $start;\n", { "type", local_type(node->value->type.dtype) },
                 { "name", node->name }, { "start", start_of(node) });
    }
}

static void write_nest(Nest *n, const char *low, const char *high)
{
    RowKernel *k = n->k;
    const Region *region = region_of(n);
    FILE *out = n->out;
    count_all_uses(n);
    write_accumulators(n);
    Text body;
    open_text(&body);
    n->out = body.out;
    k->depth += count_loops(n);
    write_statements(n);
    k->depth -= count_loops(n);
    char *text = close_text(&k->m->arena, &body);
    const char *pragma = simd_pragma(n);
    for (int i = region->nloops - 1; i >= region->nouter; i--)
        if (region->loop[i].dims & n->dims) {
            const Loop *loop = &region->loop[i];
            const bool in_chunks = *pragma && is_long_sum(n, loop, low);
            text = in_chunks ? sum_in_chunks(n, loop, low, high, pragma, text)
                             : row_loop(k, pragma, loop, low, high, text);
            pragma = "";
        }
    fputs(text, out);
    n->out = out;
}

/* The nests of one phase: one for each set of dims of its values. */
static void write_phase(RowKernel *k, int region, int phase, const char *low, const char *high, FILE *out)
{
    DimSet inner = k->region[region].inner;
    for (DimSet dims = inner; dims; dims = (dims - 1) & inner) {
        Nest nest = { .k = k, .region = region, .phase = phase, .dims = dims, .out = out };
        bool any = false;
        for (int i = 0; i < k->nnodes; i++)
            any |= is_accumulated(&nest, &k->node[i]);
        for (int i = 0; i < k->nsinks; i++)
            any |= is_drained(&nest, &k->sink[i]);
        if (any)
            write_nest(&nest, low, high);
    }
}

static void write_row_values(RowKernel *k, int region, int phase, FILE *out)
{
    for (int i = 0; i < k->nnodes; i++) {
        Node *node = &k->node[i];
        if (!node->is_wanted || is_in_row(&k->region[region], node) || node->phase != phase || is_scalar(node))
            continue;
        if (node->is_reduction)
            node->text = node->name; /* summed by the loop just written */
        else
            write_node(k, &k->region[region], node, out);
    }
}

void write_row(RowKernel *k, int region, const char *low, const char *high, FILE *out)
{
    mark_wanted(k, region);
    int64_t points = count_points(k, k->region[region].inner);
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i].kept_from >= 0 && k->node[i].kept_array < 0 && k->node[i].is_wanted)
            FILL(out, "float $array[$points];\n", { "array", k->node[i].kept_in },
                 { "points", arena_text(&k->m->arena, "%" PRId64, points) });
    write_row_values(k, region, 0, out);
    for (int phase = 0; phase < k->nphases; phase++) {
        write_phase(k, region, phase, low, high, out);
        write_row_values(k, region, phase + 1, out);
    }
    Nest end = { .k = k, .region = region, .phase = k->nphases, .dims = 0, .out = out };
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(&end, &k->sink[i]) && k->sink[i].operand)
            write_column(&end, &k->sink[i], k->sink[i].operand->text);
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(&end, &k->sink[i]) && !k->sink[i].operand)
            write_result(&end, &k->sink[i]);
}
