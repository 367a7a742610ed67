/* cuda_row_body.c -- the computation of a thread for one pack of neighbours in one phase, and for one row.
 *
 * The text of ops is that of the C back end (text.c); contiguous loads and stores use packs:
 *
 *     const RtPack<rt_bf16, 8> x_pack = rt_load_pack<8>(x + row * 768 + embed_first);
 *     RtPack<float, 8> y_pack;
 *     for (int e = 0; e < 8; e++) {
 *         const float y_i = rt_load_bf16(x_pack[e]) * scale;
 *         y_pack[e] = y_i;
 *     }
 *     rt_store_pack(y + row * 768 + embed_first, y_pack);
 */
#include "cuda_row.h"
#include "templates.h"

#include <inttypes.h>

/* --- Loads ---------------------------------------------------------------------------------------- */

static int array_of_result(const Launch *p, const Sink *sink) { return p->k->f->params.count + sink->result; }

static char *pack_type(const Launch *p, const char *element)
{
    return arena_text(&p->k->m->arena, "RtPack<%s, %d>", element, p->width);
}

static bool is_pack_of(const Launch *p, int array) { return is_packed(p, array) && p->width > 1; }

/* Each array once; of a loop in several over the pack, what these load. */
static void write_pack_loads(Launch *p, const Step *loop, bool *is_loaded, FILE *out)
{
    for (const Step *step = loop->body; step; step = step->next) {
        if (step->kind == STEP_LOOP)
            write_pack_loads(p, step, is_loaded, out);
        const int array = step->kind == STEP_LOAD ? step->node->array : -1;
        if (array < 0 || is_loaded[array] || p->in_registers[array] || !is_pack_of(p, array))
            continue;
        is_loaded[array] = true;
        const char *type = pack_type(p, element_type(step->node->value->type.dtype));
        if (is_in_shared(p, array)) {
            FILL(out, "const $type $to = rt_load_pack<$width>($from + $pack * $width);\n", { "type", type },
                 { "to", p->pack_name[array] }, { "width", number(p, p->width) }, { "from", p->shared_name[array] },
                 { "pack", use(p->pack) });
            continue;
        }
        write_pack_load(p, array, arena_text(&p->k->m->arena, "const %s %s", type, p->pack_name[array]), out);
        write_keep(p, array, out);
    }
}

/* An element of a parameter: of a pack, in the loop over its elements; of an array; or one for each row. */
static void print_load(Launch *p, const Step *step, FILE *out)
{
    Node *node = step->node;
    const int array = node->array;
    const char *pack = p->pack_name[array];
    if (p->in_registers[array])
        pack = arena_text(&p->k->m->arena, "%s[iteration]", pack);
    if (p->in_registers[array] || is_pack_of(p, array))
        write_loaded(p->k, node, load_text(p->k, node->value->type.dtype, pack, "e"), step->uses == 1, out);
    else if (!is_read_ahead(p, node))
        write_load(p->k, &p->region, node, step->uses == 1, out);
}

static void print_value(Launch *p, const Step *step, FILE *out) { write_value(p->k, &p->region, step->node, out); }

/* --- Stores --------------------------------------------------------------------------------------- */

/* "heads == 0": what has fewer dims than the pack's loops is stored or added by the first thread that shares it. */
static char *first_only(const Launch *p, const Step *step)
{
    char *text = "";
    const DimSet dims = step->operand ? step->operand->dims : step->node->dims;
    for (int i = 0; i < p->region.nloops; i++)
        if (p->region.loop[i].dims & step->loop->dims && !(p->region.loop[i].dims & dims))
            text = arena_text(&p->k->m->arena, "%s%s%s == 0", text, *text ? " && " : "", use(p->region.loop[i].index));
    return text;
}

const char *guarded(const Launch *p, const char *condition, const char *text)
{
    if (!*condition)
        return text;
    Text lines;
    open_text(&lines);
    FILL(lines.out, "if ($condition) {\n    $text\n}\n", { "condition", condition }, { "text", text });
    return close_text(&p->k->m->arena, &lines);
}

static void print_store(Launch *p, const Step *step, FILE *out)
{
    const int array = array_of_result(p, step->sink);
    const char *text = stored_text(p->k, step->sink);
    if (is_pack_of(p, array)) {
        FILL(out, "$pack[e] = $text;\n", { "pack", p->pack_name[array] }, { "text", text });
        return;
    }
    Text store;
    open_text(&store);
    write_result(p->k, &p->region, step->sink, text, store.out);
    fputs(guarded(p, first_only(p, step), close_text(&p->k->m->arena, &store)), out);
}

/* Packs of results, before and after the loop over their elements. */
static void write_result_packs(const Launch *p, const Step *loop, FILE *out)
{
    for (const Step *step = loop->body; step; step = step->next) {
        if (step->kind == STEP_LOOP)
            write_result_packs(p, step, out);
        if (step->kind == STEP_STORE && is_pack_of(p, array_of_result(p, step->sink)))
            FILL(out, "$type $pack;\n", { "type", pack_type(p, local_type(step->node->value->type.dtype)) },
                 { "pack", p->pack_name[array_of_result(p, step->sink)] });
    }
}

static void write_pack_stores(const Launch *p, const Step *loop, FILE *out)
{
    for (const Step *step = loop->body; step; step = step->next) {
        if (step->kind == STEP_LOOP)
            write_pack_stores(p, step, out);
        const int array = step->kind == STEP_STORE ? array_of_result(p, step->sink) : -1;
        if (array < 0 || !is_pack_of(p, array))
            continue;
        const char *to = pack_address(p, array), *pack = p->pack_name[array];
        const char *text = has_tail(p)
                               ? arena_text(&p->k->m->arena, "rt_store_some(%s, %s, %s);\n", to, pack, use(p->count))
                               : arena_text(&p->k->m->arena, "rt_store_pack(%s, %s);\n", to, pack);
        fputs(guarded(p, first_only(p, step), text), out);
    }
}

/* --- Sums ----------------------------------------------------------------------------------------- */

static void print_start(Launch *p, const Step *step, FILE *out)
{
    if (step->sink) {
        write_sum_start(p, step->sink, out);
        return;
    }
    step->node->text = step->node->name;
    write_start(step->node->name, step->node, out);
    if (!step->node->is_online)
        return;
    step->node->base = new_identifier(&p->k->names, arena_text(&p->k->m->arena, "%s_base", step->node->name));
    FILL(out, "float $base = RT_LEAST;\n", { "base", step->node->base });
}

/* In the steps that follow, what has been the maximum so far stands for it. */
static void print_rescale(Launch *p, const Step *step, FILE *out)
{
    (void)p;
    FILL(out, "rt_rescale($sum, $base, $most);\n", { "sum", step->node->name }, { "base", step->node->base },
         { "most", step->operand->name });
    step->operand->text = step->node->base;
}

static void print_add(Launch *p, const Step *step, FILE *out)
{
    Text add;
    open_text(&add);
    if (step->sink)
        add_to_column(p, step->sink, step->operand->text, add.out);
    else
        fputs(fold_text(p, step->node, step->node->name, step->operand->text), add.out);
    fputs(guarded(p, first_only(p, step), close_text(&p->k->m->arena, &add)), out);
}

/* Combines the partial sums of a row's lanes into the sum, in every thread; of one with a base, those relative to the
 * maximum of the row, which has been combined. If a block computes one row after another,
 * rows alternate between two halves of shared memory, which needs only one barrier. */
static void combine_lanes(Launch *p, const Step *step, FILE *out)
{
    RowKernel *k = p->k;
    int warps = p->row_threads / WARP;
    const char *list = "", *leave = "", *take = "";
    for (const Step *add = step->loop->body; add; add = add->next) {
        const Node *node = add->node;
        if (add->kind != STEP_ADD || add->sink)
            continue;
        if (node->is_online) {
            FILL(out, "$name *= expf($base - $most);\n", { "name", node->name }, { "base", node->base },
                 { "most", node->most->name });
            node->most->text = node->most->name;
        }
        FILL(out, "$name = rt_warp<$functor>($name);\n", { "name", node->name }, { "functor", functor_of(node) });
        const char *parts = new_identifier(&k->names, arena_text(&k->m->arena, "%s_parts", node->name));
        const char *type = local_type(node->value->type.dtype);
        const char *side = p->ncolumns ? "[side]" : "", *sides = p->ncolumns ? "[2]" : "";
        list = arena_text(&k->m->arena, "%s__shared__ %s %s%s[%d][%d];\n", list, type, parts, sides, rows_at_once(p),
                          warps);
        leave = arena_text(&k->m->arena, "%s%s%s[team][lane / 32] = %s;\n", leave, parts, side, node->name);
        take = arena_text(&k->m->arena, "%s%s = rt_warps<%s, %d, %s>(%s%s[team], %s);\n", take, node->name,
                          functor_of(node), warps, type, parts, side, start_of(node));
    }
    if (!*list || warps == 1)
        return;
    p->takes_sides |= p->ncolumns > 0;
    FILL(out, cuda_meet_template, { "list", list }, { "leave", leave }, { "take", take });
}

static void print_combine(Launch *p, const Step *step, FILE *out)
{
    if (step->sink)
        write_sum_end(p, step->sink, out);
    else
        combine_lanes(p, step, out);
}

/* --- Loops ---------------------------------------------------------------------------------------- */

static char *body_text(Launch *p, const Step *loop)
{
    Text body;
    open_text(&body);
    print_launch_steps(p, loop->body, body.out);
    return close_text(&p->k->m->arena, &body);
}

static void write_pack(Launch *p, const void *context, FILE *out)
{
    const Step *loop = context;
    const bool in_parts = loop->body && loop->body->kind == STEP_LOOP;
    write_pack_loads(p, loop, NEW_ARRAY(&p->k->m->arena, bool, p->k->narrays), out);
    write_result_packs(p, loop, out);
    char *lines = body_text(p, loop);
    bool in_registers = false;
    for (int i = 0; i < p->k->narrays; i++)
        in_registers |= p->in_registers[i];
    bool in_packs = !in_parts && p->vector && (p->width > 1 || in_registers || p->iterations);
    fputs(in_packs ? each_element(p, true, lines) : lines, out);
    write_pack_stores(p, loop, out);
}

const char *place_in_block(const Launch *p) { return has_teams(p) ? "team" : "threadIdx.x"; }

/* The part of the block, whose number includes own dims. */
static char *part_text(const Launch *p)
{
    const int64_t own = iterations_of(p, p->own);
    return arena_text(&p->k->m->arena, own > 1 ? "%s%s / %" PRId64 : "%s%s", p->mapping == MAP_COLUMNS ? "(int)" : "",
                      block_number(p), own);
}

/* The rows or packs of a block: one for each team or thread, or one after another. */
static void print_items(Launch *p, const Step *step, FILE *out)
{
    if (p->reads_ahead)
        write_first_row(p, part_text(p), out);
    const char *body = with_indices(p, p->item, step->dims, !has_teams(p), body_text(p, step));
    if (!p->ncolumns) {
        fputs(body, out);
        return;
    }
    Text loop;
    open_text(&loop);
    FILL(loop.out, cuda_items_template, { "type", p->index_type }, { "part", part_text(p) },
         { "at_once", number(p, rows_at_once(p)) }, { "place", place_in_block(p) }, { "items", number(p, items_of(p)) },
         { "step", number(p, p->row_blocks * rows_at_once(p)) }, { "side", p->takes_sides ? "int side = 0;" : "" },
         { "body", body }, { "next_side", p->takes_sides ? "side ^= 1;" : "" });
    const char *tile = "";
    if (p->mapping == MAP_COLUMNS) {
        fputs(index_lines(p, p->pack, p->region.inner, true, true), out);
        tile = arena_text(&p->k->m->arena, "pack < %" PRId64, p->packs);
    }
    fputs(guarded(p, tile, close_text(&p->k->m->arena, &loop)), out);
}

/* What a row has once is done by its first thread. */
static void print_loop(Launch *p, const Step *step, FILE *out)
{
    const char *once = step->dims || step->runner == BY_BLOCKS ? "" : body_text(p, step);
    if (step->runner == BY_BLOCKS)
        print_items(p, step, out);
    else if (step->runner == BY_PACK)
        fputs(each_element(p, true, body_text(p, step)), out);
    else if (*once)
        fputs(guarded(p, p->mapping == MAP_ROWS ? "lane == 0" : "", once), out);
    else if (step->dims && p->mapping == MAP_ROWS)
        write_iterations(p, write_pack, step, out);
    else if (step->dims)
        write_pack(p, step, out);
}

static PrintStep *const print[N_STEP_KINDS] = {
    [STEP_LOAD] = print_load,       [STEP_LET] = print_value,   [STEP_ROOM] = write_shared_rows,
    [STEP_KEEP] = write_kept_rows,  [STEP_START] = print_start, [STEP_ADD] = print_add,
    [STEP_COMBINE] = print_combine, [STEP_STORE] = print_store, [STEP_LOOP] = print_loop,
    [STEP_RESCALE] = print_rescale,
};

void print_launch_steps(Launch *p, const Step *steps, FILE *out)
{
    for (const Step *step = steps; step; step = step->next)
        print[step->kind](p, step, out);
}
