/* cuda_columns.c -- sums over rows, computed in parts by many blocks.
 *
 * A block writes its sums to scratch: [part, own dims, inner dims].  A second launch adds the parts, in order.
 */
#include "cuda_row.h"
#include "templates.h"

#include <inttypes.h>

static const char *type_of(const Column *column) { return local_type(column->sink->node->value->type.dtype); }

const char *functor_of(const Node *reduction)
{
    Role over = info(reduction->op)->over;
    return over == MAX ? "RtMax" : over == MIN ? "RtMin" : "RtSum";
}

/* --- Where sums are ------------------------------------------------------------------------------- */

/* If a row does not fit into registers, neither do its sums. */
bool is_in_scratch(const Launch *p, const Column *column)
{
    return column->is_wide && p->mapping == MAP_ROWS && p->iterations == 0;
}

static int64_t wide_count(const Launch *p, const Column *column)
{
    return column->is_wide ? count_points(p->k, p->region.inner) : 1;
}

static char *scratch_text(const Launch *p, const Column *column)
{
    const char *memory = column->sink->node->value->type.dtype == I32 ? "(int32_t *)scratch" : "scratch";
    return column->at ? arena_text(&p->k->m->arena, "%s + %" PRId64, memory, column->at)
                      : arena_text(&p->k->m->arena, "%s", memory);
}

int64_t tiles_of(const Launch *p) { return p->mapping == MAP_COLUMNS ? (p->packs + WARP - 1) / WARP : 1; }

char *block_number(const Launch *p)
{
    return arena_text(&p->k->m->arena, tiles_of(p) > 1 ? "%s / %" PRId64 : "%s", block_index(p), tiles_of(p));
}

static const Column *column_of(const Launch *p, const Sink *sink)
{
    const Column *column = p->column;
    while (column->sink != sink)
        column++;
    return column;
}

/* Declares a pointer to the sums of the block. */
static void write_block_sums(const Launch *p, const Column *column, const char *name, FILE *out)
{
    int64_t count = wide_count(p, column);
    char *at = arena_text(&p->k->m->arena, "(int64_t)(%s)", block_number(p));
    if (count > 1)
        at = arena_text(&p->k->m->arena, "%s * %" PRId64, at, count);
    FILL(out, "$type *const $name = $scratch + $at;\n", { "type", type_of(column) }, { "name", name },
         { "scratch", scratch_text(p, column) }, { "at", at });
}

/* "sum += x;", "most = RtMax::of(most, x);" */
char *fold_text(const Launch *p, const Node *reduction, const char *into, const char *text)
{
    if (info(reduction->op)->over == SUM)
        return accumulation(p->k, reduction, into, text);
    return arena_text(&p->k->m->arena, "%s = %s::of(%s, %s);\n", into, functor_of(reduction), into, text);
}

void add_to_column(Launch *p, const Sink *sink, const char *text, FILE *out)
{
    const Column *column = column_of(p, sink);
    const char *into = sink->name;
    if (is_in_scratch(p, column))
        into = arena_text(&p->k->m->arena, "%s[%s]", into, dense_index(p->k, &p->region, p->region.inner));
    else if (column->is_wide)
        into = arena_text(&p->k->m->arena,
                          p->mapping == MAP_ROWS ? "%s[iteration][e]"
                          : p->width > 1         ? "%s[e]"
                                                 : "%s[0]",
                          into);
    fputs(fold_text(p, sink->node, into, text), out);
}

void write_sum_start(Launch *p, const Sink *sink, FILE *out)
{
    const Column *column = column_of(p, sink);
    Hole type = { "type", type_of(column) }, name = { "name", sink->name }, start = { "start", start_of(sink->node) };
    Hole width = { "width", number(p, p->width) };
    if (is_in_scratch(p, column)) {
        write_block_sums(p, column, sink->name, out);
        FILL(out, cuda_clear_template, name, start, { "threads", number(p, p->threads) },
             { "count", number(p, wide_count(p, column)) });
    } else if (!column->is_wide) {
        write_start(sink->name, sink->node, out);
    } else if (p->mapping == MAP_COLUMNS) {
        FILL(out, "RtPack<$type, $width> $name = rt_all<$width, $type>($start);\n", type, name, start, width);
    } else {
        FILL(out, cuda_sums_template, type, name, start, width, { "iterations", number(p, p->iterations) });
    }
}

/* --- Sums of blocks ------------------------------------------------------------------------------- */

/* Stores a sum of the block: into scratch (`to`), or as the result. */
static char *leave_text(const Launch *p, const Column *column, const char *to, const char *value)
{
    Text text;
    open_text(&text);
    if (column->at >= 0) {
        const char *index = column->is_wide ? dense_index(p->k, &p->region, p->region.inner) : "0";
        FILL(text.out, "$to[$index] = $value;\n", { "to", to }, { "index", index }, { "value", value });
    } else {
        write_result(p->k, &p->region, column->sink, value, text.out);
    }
    return close_text(&p->k->m->arena, &text);
}

/* One sum of all threads of the block. */
static void leave_one(const Launch *p, const Column *column, FILE *out)
{
    const Sink *sink = column->sink;
    FILL(out, cuda_block_sum_template, { "type", type_of(column) }, { "name", sink->name }, { "parts", sink->parts },
         { "start", start_of(sink->node) }, { "functor", functor_of(sink->node) },
         { "warps", number(p, p->threads / WARP) },
         { "leave", leave_text(p, column, column->at >= 0 ? arena_text(&p->k->m->arena, "%s_left", sink->name) : "",
                               sink->name) });
}

/* For a block of columns: the first warp adds the sums of all warps. */
static void leave_tile(const Launch *p, const Column *column, FILE *out)
{
    const Sink *sink = column->sink;
    const char *value = arena_text(&p->k->m->arena, "%s[e]", sink->name);
    const char *to = column->at >= 0 ? arena_text(&p->k->m->arena, "%s_left", sink->name) : "";
    FILL(out, cuda_tile_sum_template, { "type", type_of(column) }, { "name", sink->name }, { "parts", sink->parts },
         { "functor", functor_of(sink->node) }, { "width", number(p, p->width) },
         { "warps", number(p, p->threads / WARP) }, { "packs", number(p, p->packs) },
         { "leave", each_element(p, true, leave_text(p, column, to, value)) });
}

static char *left_name(const Launch *p, const Column *column)
{
    return arena_text(&p->k->m->arena, "%s_left", column->sink->name);
}

static char *sum_in_turn(const Launch *p, const Column *column)
{
    return arena_text(&p->k->m->arena, "%s[iteration][e]", column->sink->name);
}

static void leave_iteration(Launch *p, const void *context, FILE *out)
{
    const Column *column = context;
    fputs(each_element(p, true, leave_text(p, column, left_name(p, column), sum_in_turn(p, column))), out);
}

static void add_iteration(Launch *p, const void *context, FILE *out)
{
    const Column *column = context;
    Text add;
    open_text(&add);
    FILL(add.out, "$parts[$index] = other == 0 ? $value : $functor::of($parts[$index], $value);\n",
         { "parts", column->sink->parts }, { "index", dense_index(p->k, &p->region, p->region.inner) },
         { "value", sum_in_turn(p, column) }, { "functor", functor_of(column->sink->node) });
    fputs(each_element(p, true, close_text(&p->k->m->arena, &add)), out);
}

/* The sums of a row: of each thread, or of several rows combined in shared memory. */
static void leave_row(Launch *p, const Column *column, FILE *out)
{
    if (rows_at_once(p) == 1) {
        write_iterations(p, leave_iteration, column, out);
        return;
    }
    Text iterations;
    open_text(&iterations);
    write_iterations(p, add_iteration, column, iterations.out);
    FILL(out, cuda_row_sums_template, { "type", type_of(column) }, { "parts", column->sink->parts },
         { "left", left_name(p, column) }, { "count", number(p, wide_count(p, column)) },
         { "rows", number(p, rows_at_once(p)) }, { "threads", number(p, p->threads) },
         { "iterations", close_text(&p->k->m->arena, &iterations) });
}

void write_sum_end(Launch *p, const Sink *sink, FILE *out)
{
    const Column *column = column_of(p, sink);
    if (is_in_scratch(p, column))
        return;
    if (column->at >= 0)
        write_block_sums(p, column, left_name(p, column), out);
    if (!column->is_wide)
        leave_one(p, column, out);
    else if (p->mapping == MAP_COLUMNS)
        leave_tile(p, column, out);
    else
        leave_row(p, column, out);
}

/* --- Totals --------------------------------------------------------------------------------------- */

static char *iterations_text(const Launch *p, const Loop *loop, const char *body)
{
    const char *index = declare(loop->index);
    return arena_text(&p->k->m->arena, "for (%s %s = 0; %s < %" PRId64 "; %s++)\n    %s", p->index_type, index, index,
                      loop->size, index, body);
}

/* "sum += parts[part * 768 + embed]", over the parts. */
static char *add_part(const Launch *p, const Column *column)
{
    DimSet held = p->own | (column->is_wide ? p->region.inner : 0), dropped = held & ~column->sink->node->dims;
    int64_t all = count_points(p->k, p->own) * wide_count(p, column);
    const char *part = arena_text(&p->k->m->arena, "part * %" PRId64 " + %s", all, dense_index(p->k, &p->region, held));
    const char *element = arena_text(&p->k->m->arena, "%s[%s]", column->sink->parts, part);
    char *text = arena_text(&p->k->m->arena, "%s = %s::of(%s, %s);\n", column->sink->name,
                            functor_of(column->sink->node), column->sink->name, element);
    for (int i = p->region.nloops - 1; i >= 0; i--) {
        const Loop *loop = &p->region.loop[i];
        if (loop->dims & dropped)
            text = iterations_text(p, loop, text);
    }
    return text;
}

static CudaLaunch write_total(Launch *p, const Column *column, const char *name, FILE *out)
{
    const Sink *sink = column->sink;
    const Array *array = &p->k->array[p->k->f->params.count + sink->result];
    int64_t results = iterations_of(p, sink->node->dims);
    bool by_lane = results >= BLOCK;
    int64_t at_once = by_lane ? WARP : BLOCK / WARP;
    DimSet dims = sink->node->dims;
    const char *add = with_indices(p, p->item, dims, false, add_part(p, column));
    Text store;
    open_text(&store);
    write_result(p->k, &p->region, sink, sink->name, store.out);
    FILL(out, by_lane ? cuda_total_by_lane_template : cuda_total_by_warp_template,
         { "head", launch_head(p, name, BLOCK) }, { "block", block_index(p) }, { "type", type_of(column) },
         { "name", sink->name }, { "parts", sink->parts }, { "start", start_of(sink->node) },
         { "functor", functor_of(sink->node) }, { "scratch", scratch_text(p, column) },
         { "count", number(p, p->row_blocks) }, { "results", number(p, results) }, { "add", add },
         { "store", with_indices(p, p->item, dims, false, close_text(&p->k->m->arena, &store)) });
    return (CudaLaunch){ .name = name,
                         .blocks = (results + at_once - 1) / at_once,
                         .threads = BLOCK,
                         .bytes = p->row_blocks * sums_of(p, column) * dtype_bytes(F32) +
                                  results * dtype_bytes(array->value->type.dtype) };
}

/* A call of a total's function, for the blocks from `first` to before `end`. */
static void write_total_case(const Launch *p, const char *name, int64_t first, int64_t end, FILE *out)
{
    const RowKernel *k = p->k;
    const char **names = NEW_ARRAY(&k->m->arena, const char *, k->narrays + 1);
    for (int i = 0; i < k->narrays; i++)
        names[i] = k->array[i].name;
    names[k->narrays] = "scratch";
    char *head = arena_text(&k->m->arena, first ? "%s(all - %" PRId64 ", " : "%s(all, ", name, first);
    FILL(out, cuda_group_case_template, { "end", number(p, end) },
         { "call", wrapped_list(k->m, head, k->narrays + 1, names, ");", 15) });
}

/* All totals of a launch as one launch, in which each is a function. */
static void write_totals_together(Launch *p, const char *name, CudaLaunches *launches, FILE *out)
{
    CudaLaunch all = { .name = arena_text(&p->k->m->arena, "%s_totals", name), .threads = BLOCK };
    Text cases;
    open_text(&cases);
    p->is_member = true;
    for (int i = 0; i < p->ncolumns; i++) {
        if (p->column[i].at < 0)
            continue;
        const char *own = arena_text(&p->k->m->arena, "%s_total%d", name, i + 1);
        const CudaLaunch one = write_total(p, &p->column[i], own, out);
        fputc('\n', out);
        write_total_case(p, own, all.blocks, all.blocks + one.blocks, cases.out);
        all.blocks += one.blocks;
        all.bytes += one.bytes;
    }
    p->is_member = false;
    FILL(out, cuda_group_template, { "head", launch_head(p, all.name, BLOCK) },
         { "cases", close_text(&p->k->m->arena, &cases) });
    add_launch(launches, all, p->k->m);
}

/* Members of a group get a launch for each, which they share with those of other members. */
void write_totals(Launch *p, const char *name, CudaLaunches *launches, FILE *out)
{
    int count = 0;
    for (int i = 0; i < p->ncolumns; i++)
        count += p->column[i].at >= 0;
    if (count > 1 && !p->is_member) {
        fputc('\n', out);
        write_totals_together(p, name, launches, out);
        return;
    }
    for (int i = 0; i < p->ncolumns; i++) {
        if (p->column[i].at < 0)
            continue;
        fputc('\n', out);
        add_launch(launches, write_total(p, &p->column[i], arena_text(&p->k->m->arena, "%s_total%d", name, i + 1), out),
                   p->k->m);
    }
}
