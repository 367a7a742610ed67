/* row_print.c -- the text of the steps of a row kernel in C. */
#include "row.h"
#include "templates.h"

#include <inttypes.h>

typedef void Print(RowKernel *k, const Region *r, const Step *step, FILE *out);

static char *number(const RowKernel *k, int64_t value) { return arena_text(&k->m->arena, "%" PRId64, value); }
static const char *type_of(const Node *node) { return local_type(node->value->type.dtype); }

/* Has the step the sums of a column in an array, one for each element that the result keeps? */
static bool is_array(const RowKernel *k, const Step *step) { return step->sink && summed_into(k, step->sink); }

/* --- Values and stores ---------------------------------------------------------------------------- */

static void print_load(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    write_load(k, r, step->node, step->uses == 1 && !is_half(step->node->value->type.dtype), out);
}

static void print_value(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    write_value(k, r, step->node, out);
}

static void print_room(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    const Sink *sink = step->sink;
    if (!sink) {
        FILL(out, "float $array[$points];\n", { "array", step->node->kept_in },
             { "points", number(k, count_points(k, r->inner)) });
        return;
    }
    Hole type = { "type", type_of(step->node) }, parts = { "parts", sink->parts };
    if (sink->at < 0)
        FILL(out, "$type $parts[$blocks];\n", type, parts, { "blocks", number(k, r->blocks) });
    else
        FILL(out, "$type *const $parts = $memory$at;\n", type, parts,
             { "memory", step->node->value->type.dtype == I32 ? "(int32_t *)scratch" : "scratch" },
             { "at", sink->at ? arena_text(&k->m->arena, " + %" PRId64, sink->at) : "" });
}

static void print_keep(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    if (!step->sink)
        write_store(k, F32, step->node->kept_in, dense_index(k, r, step->loop->dims), step->node->text, out);
    else if (step->sink->at < 0)
        FILL(out, "$parts[block] = $name;\n", { "parts", step->sink->parts }, { "name", step->sink->name });
}

static void print_store(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    write_result(k, r, step->sink, stored_text(k, step->sink), out);
}

/* --- Sums ----------------------------------------------------------------------------------------- */

static char *row_loop(const RowKernel *k, const char *pragma, const Loop *loop, const char *low, const char *high,
                      const char *body)
{
    return loop_text(k->m, pragma, loop->index->name, low ? low : "0", high ? high : number(k, loop->size), body);
}

/* GCC 12 assumes an array on the stack to be aligned in the rest of a loop whose vectors do not divide it, but does not
 * align it: a store of 32 bytes then traps. */
static void print_start(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    const Sink *sink = step->sink;
    step->node->text = sink ? sink->name : step->node->name;
    if (!is_array(k, step)) {
        write_start(step->node->text, step->node, out);
        return;
    }
    Hole type = { "type", type_of(step->node) }, name = { "name", sink->name },
         count = { "count", number(k, sum_count(k, sink)) };
    if (sink->at < 0)
        FILL(out, "_Alignas(64) $type $name[$count];\n", type, name, count);
    else
        FILL(out, "$type *const $name = $parts + block * $count;\n", type, name, count, { "parts", sink->parts });
    const Loop all = { .size = sum_count(k, sink), .index = &(Variable){ .name = "i" } };
    const char *clear = arena_text(&k->m->arena, "%s[i] = %s;\n", sink->name, start_of(step->node));
    fputs(row_loop(k, "", &all, NULL, NULL, clear), out);
    step->node->text = arena_text(&k->m->arena, "%s[%s]", sink->name, dense_index(k, r, summed_into(k, sink)));
}

static void print_add(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    const char *into = step->node->text, *text = step->operand->text;
    if (!is_array(k, step) || info(step->node->op)->over == SUM) {
        fputs(accumulation(k, step->node, into, text), out);
        return;
    }
    const char *now = new_identifier(&k->names, arena_text(&k->m->arena, "%s_was", step->sink->name));
    write_local(k, type_of(step->node), now, into, out);
    FILL(out, "$into = $text;\n", { "into", into }, { "text", chosen_text(k, step->node, now, text) });
}

/* Adds the sums of all blocks, in order. */
static void print_combine(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    const Sink *sink = step->sink;
    const char *part = arena_text(&k->m->arena, "%s[block]", sink->parts);
    if (sink->at >= 0)
        part = arena_text(&k->m->arena, "%s[block * %" PRId64 " + %s]", sink->parts, sum_count(k, sink),
                          dense_index(k, r, summed_into(k, sink)));
    const char *add = accumulation(k, step->node, sink->name, part);
    if (info(step->node->op)->over != SUM)
        add = arena_text(&k->m->arena, "const %s part = %s;\n%s", type_of(step->node), part,
                         accumulation(k, step->node, sink->name, "part"));
    Text store;
    open_text(&store);
    write_result(k, r, sink, sink->name, store.out);
    FILL(out, row_total_template, { "type", type_of(step->node) }, { "name", sink->name },
         { "start", start_of(step->node) }, { "blocks", number(k, r->blocks) }, { "add", add },
         { "store", close_text(&k->m->arena, &store) });
}

/* --- Loops over dims ------------------------------------------------------------------------------ */

/* " reduction(+ : a, b)" for the scalars that the loop reduces with this role. */
static char *clause(const RowKernel *k, const Step *loop, Role role)
{
    char *list = "";
    for (const Step *s = loop->body; s; s = s->next)
        if (s->kind == STEP_ADD && info(s->node->op)->over == role && !is_array(k, s))
            list = arena_text(&k->m->arena, "%s%s%s", list, *list ? ", " : "", s->node->text);
    return !*list ? ""
                  : arena_text(&k->m->arena, " reduction(%s : %s)",
                               role == SUM   ? "+"
                               : role == MAX ? "max"
                                             : "min",
                               list);
}

/* A loop over dims that a column does not keep, into an array of columns: it adds repeatedly to one element. */
static bool is_in_order(const RowKernel *k, const Step *loop, const Loop *innermost)
{
    bool any = false;
    for (const Step *s = loop->body; s; s = s->next)
        any |= s->kind == STEP_ADD && is_array(k, s) && !(s->node->dims & innermost->dims);
    return any;
}

static char *vector_pragma(const RowKernel *k, const Step *loop, const Loop *innermost)
{
    return is_in_order(k, loop, innermost) ? ""
                                           : arena_text(&k->m->arena, "#pragma omp simd%s%s%s", clause(k, loop, SUM),
                                                        clause(k, loop, MAX), clause(k, loop, MIN));
}

static char *threads_pragma(const RowKernel *k, int loops)
{
    return arena_text(&k->m->arena, loops > 1 ? "#pragma omp parallel for collapse(%d)" : "#pragma omp parallel for",
                      loops);
}

static char *chunks(const RowKernel *k, const char *pragma, const char *low, const char *high, int64_t step,
                    const char *body)
{
    return FILLED(&k->m->arena, row_chunks_template, { "pragma", pragma }, { "low", low }, { "high", high },
                  { "step", number(k, step) }, { "body", body });
}

/* A long sum is one of sums of chunks: each sum that the pragma names begins again in each of them.  If all elements
 * were added to one number, those of a kind would all be rounded in the same direction once it is large (Higham, The
 * accuracy of floating point summation, 1993).  A loop in order has no pragma, and no such sums. */
static bool is_long_sum(const RowKernel *k, const Region *r, const Step *step, const Loop *loop, const char *pragma)
{
    const int64_t parts = step->low && r->blocks > 1 ? r->blocks : 1;
    return *pragma && loop->size / parts > SUM_CHUNK && *clause(k, step, SUM);
}

static char *body_text(RowKernel *k, const Region *r, const Step *loop, int levels)
{
    Text body;
    open_text(&body);
    k->depth += levels;
    print_steps(k, r, loop->body, body.out);
    k->depth -= levels;
    return close_text(&k->m->arena, &body);
}

static void print_nest(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    int loops = 0, left;
    for (int i = 0; i < r->nloops; i++)
        loops += (r->loop[i].dims & step->dims) != 0;
    char *text = body_text(k, r, step, left = loops);
    for (const Loop *loop = r->loop + r->nloops - 1; left > 0; loop--) {
        if (!(loop->dims & step->dims))
            continue;
        const char *pragma = step->runner == BY_VECTORS && left == loops ? vector_pragma(k, step, loop)
                             : step->runner == BY_THREADS && left == 1   ? threads_pragma(k, loops)
                                                                         : "";
        text = is_long_sum(k, r, step, loop, pragma)
                   ? chunks(k, "", step->low ? step->low : "0", step->high ? step->high : number(k, loop->size),
                            SUM_CHUNK, row_loop(k, pragma, loop, "begin", "end", text))
                   : row_loop(k, pragma, loop, step->low, step->high, text);
        left--;
    }
    fputs(text, out);
}

/* --- Other loops ---------------------------------------------------------------------------------- */

static void print_chunks(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    fputs(chunks(k, threads_pragma(k, 1), "0", number(k, r->loop[0].size), FLAT_BLOCK, body_text(k, r, step, 1)), out);
}

static void print_blocks(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    const Loop blocks = { .size = r->blocks, .index = &(Variable){ .name = "block" } };
    fputs(row_loop(k, threads_pragma(k, 1), &blocks, NULL, NULL, body_text(k, r, step, 1)), out);
}

/* Several outer loops are one over all of their iterations. */
static void print_block(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    const bool is_one = r->nouter == 1;
    const Loop rows = { .index = is_one ? r->loop[0].index : &(Variable){ .name = "iteration" } };
    Text row;
    open_text(&row);
    int64_t below = count_points(k, step->dims);
    for (int i = 0; i < r->nouter && !is_one; i++) {
        below /= r->loop[i].size;
        const char *index = below > 1 ? arena_text(&k->m->arena, "iteration / %" PRId64, below) : "iteration";
        if (i > 0)
            index = arena_text(&k->m->arena, "%s %% %" PRId64, index, r->loop[i].size);
        FILL(row.out, "const int64_t $name = $index;\n", { "name", r->loop[i].index->name }, { "index", index });
    }
    fputs(body_text(k, r, step, r->nouter > 0), row.out);
    const char *text = close_text(&k->m->arena, &row);
    fputs(r->nouter ? row_loop(k, "", &rows, step->low, step->high, text) : text, out);
}

static Print *const loop[N_RUNNERS] = {
    [BY_ONE] = print_nest,      [BY_THREADS] = print_nest,  [BY_VECTORS] = print_nest,
    [BY_CHUNKS] = print_chunks, [BY_BLOCKS] = print_blocks, [BY_ITS_BLOCK] = print_block,
};

static void print_loop(RowKernel *k, const Region *r, const Step *step, FILE *out)
{
    loop[step->runner](k, r, step, out);
}

static Print *const print[N_STEP_KINDS] = {
    [STEP_LOAD] = print_load,       [STEP_LET] = print_value,   [STEP_ROOM] = print_room,
    [STEP_KEEP] = print_keep,       [STEP_START] = print_start, [STEP_ADD] = print_add,
    [STEP_COMBINE] = print_combine, [STEP_STORE] = print_store, [STEP_LOOP] = print_loop,
};

void print_steps(RowKernel *k, const Region *region, const Step *steps, FILE *out)
{
    for (const Step *step = steps; step; step = step->next)
        print[step->kind](k, region, step, out);
}
