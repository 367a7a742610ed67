/* cuda_row_body.c -- the computation of a thread for one pack of neighbours in one phase, and for one row.
 *
 * The text of ops is that of the C back end (row_text.c); contiguous loads and stores use packs:
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
#include <string.h>

Nest nest_of(const Launch *p, int phase)
{
    const bool by_rows = p->mapping == MAP_ROWS;
    return (Nest){ .k = p->k,
                   .has = p->has,
                   .inner = by_rows ? p->region.inner : ANY_DIMS,
                   .dims = ANY_DIMS,
                   .phase = phase,
                   .all_phases = !by_rows };
}

static bool is_in_pack(const Launch *p, const Node *node)
{
    const Nest nest = nest_of(p, 0);
    return is_in_loops(&nest, node);
}

/* Only values that a sink needs are computed. */
void mark_needed(Launch *p)
{
    for (int i = 0; i < p->k->nnodes; i++) {
        Node *node = &p->k->node[i];
        node->is_loaded = false;
        node->text = node->mask = NULL;
    }
    mark_wanted(p->k, p->has);
}

/* --- Loads ---------------------------------------------------------------------------------------- */

static int array_of_result(const Launch *p, const Sink *sink) { return p->k->f->params.count + sink->result; }

/* "x + row * 768 + embed_first" */
static char *pack_address(const Launch *p, int array)
{
    const Array *a = &p->k->array[array];
    Variable *element = p->vector->index;
    if (p->width > 1)
        p->vector->index = p->first;
    char *index = index_text(p->k, &p->region, a->dims, a->stride);
    p->vector->index = element;
    return arena_text(&p->k->m->arena, "%s + %s", a->name, index);
}

static void write_pack_load(const Launch *p, int array, const char *to, FILE *out)
{
    Hole name = { "to", to }, width = { "width", number(p, p->width) }, from = { "from", pack_address(p, array) };
    if (has_tail(p))
        FILL(out, "$to = rt_load_some<$width>($from, $count);\n", name, width, from, { "count", use(p->count) });
    else
        FILL(out, "$to = rt_load_pack<$width>($from);\n", name, width, from);
}

static char *pack_type(const Launch *p, const char *element)
{
    return arena_text(&p->k->m->arena, "RtPack<%s, %d>", element, p->width);
}

static bool is_pack_of(const Launch *p, int array) { return is_packed(p, array) && p->width > 1; }

void write_register_loads(Launch *p, const void *names, FILE *out)
{
    const char *const *name = names;
    for (int i = 0; i < p->k->f->params.count; i++)
        if (p->in_registers[i])
            write_pack_load(p, i, arena_text(&p->k->m->arena, "%s[iteration]", name[i]), out);
}

/* Pointers to arrays that stay in shared memory. */
void write_shared_rows(const Launch *p, FILE *out)
{
    int64_t bytes = 0;
    if (p->shared)
        fputs("RT_DYNAMIC_SHARED(memory);\n", out);
    for (int i = 0; i < p->k->narrays; i++) {
        if (!p->in_shared[i])
            continue;
        FILL(out, "$type *const $name = reinterpret_cast<$type *>(memory$at);\n",
             { "type", element_type(p->k->array[i].value->type.dtype) }, { "name", p->shared_name[i] },
             { "at", bytes ? arena_text(&p->k->m->arena, " + %" PRId64, bytes) : "" });
        bytes += p->packs * 16;
    }
}

static void write_shared_load(const Launch *p, int array, FILE *out)
{
    Hole to = { "to", p->shared_name[array] }, pack = { "pack", use(p->pack) },
         width = { "width", number(p, p->width) }, from = { "from", pack_address(p, array) };
    if (has_tail(p))
        FILL(out, "rt_keep_pack($to + $pack * $width, rt_load_some<$width>($from, $count));\n", to, pack, width, from,
             { "count", use(p->count) });
    else
        FILL(out, "rt_copy_async($to + $pack * $width, $from, true);\n", to, pack, width, from);
}

/* Each thread copies the packs that it will read itself, so no barrier is needed. */
void write_shared_loads(Launch *p, FILE *out)
{
    for (int i = 0; i < p->k->narrays; i++)
        if (p->in_shared[i])
            write_shared_load(p, i, out);
}

static void write_pack_loads(const Launch *p, FILE *out)
{
    for (int i = 0; i < p->k->nnodes; i++) {
        const Node *node = &p->k->node[i];
        if (node->op || !node->uses || !is_in_pack(p, node) || p->in_registers[node->array] ||
            !is_pack_of(p, node->array))
            continue;
        const char *type = pack_type(p, element_type(node->value->type.dtype));
        if (p->in_shared[node->array]) {
            FILL(out, "const $type $to = rt_load_pack<$width>($from + $pack * $width);\n", { "type", type },
                 { "to", p->pack_name[node->array] }, { "width", number(p, p->width) },
                 { "from", p->shared_name[node->array] }, { "pack", use(p->pack) });
            continue;
        }
        write_pack_load(p, node->array, arena_text(&p->k->m->arena, "const %s %s", type, p->pack_name[node->array]),
                        out);
    }
}

/* The text of an element of a parameter. */
static void write_element(Launch *p, Node *node, FILE *out)
{
    RowKernel *k = p->k;
    const Array *array = &k->array[node->array];
    DType dtype = node->value->type.dtype;
    if (p->in_registers[node->array])
        node->text = load_text(k, dtype, arena_text(&k->m->arena, "%s[iteration]", p->pack_name[node->array]), "e");
    else if (is_pack_of(p, node->array))
        node->text = load_text(k, dtype, p->pack_name[node->array], "e");
    else
        node->text = load_text(k, dtype, array->name, index_text(k, &p->region, array->dims, array->stride));
    if (node->uses == 1)
        return;
    write_local(k, local_type(dtype), node->name, node->text, out);
    node->text = node->name;
}

/* --- Stores --------------------------------------------------------------------------------------- */

/* "heads == 0": an element with fewer dims than the pack's loops is stored by the first thread that shares it. */
static char *first_only(const Launch *p, DimSet dims)
{
    char *text = "";
    DimSet loops = p->mapping == MAP_ROWS ? p->region.inner : p->region.dims;
    for (int i = 0; i < p->region.nloops; i++)
        if (p->region.loop[i].dims & loops && !(p->region.loop[i].dims & dims))
            text = arena_text(&p->k->m->arena, "%s%s%s == 0", text, *text ? " && " : "", use(p->region.loop[i].index));
    return text;
}

static void write_guarded(const Launch *p, const char *condition, const char *text, FILE *out)
{
    if (!*condition)
        fputs(text, out);
    else
        FILL(out, "if ($condition) {\n    $text\n}\n", { "condition", condition }, { "text", text });
}

static void write_packed_result(const Launch *p, const Sink *sink, FILE *out)
{
    RowKernel *k = p->k;
    int number_of_array = array_of_result(p, sink);
    const Array *array = &k->array[number_of_array];
    if (is_pack_of(p, number_of_array)) {
        FILL(out, "$pack[e] = $text;\n", { "pack", p->pack_name[number_of_array] }, { "text", stored_text(k, sink) });
        return;
    }
    Text store;
    open_text(&store);
    write_result(k, &p->region, sink, stored_text(k, sink), store.out);
    write_guarded(p, first_only(p, array->dims), close_text(&k->m->arena, &store), out);
}

/* Packs of results, before and after the loop over their elements. */
static void write_result_packs(const Launch *p, const Nest *nest, FILE *out)
{
    for (int i = 0; i < p->k->nsinks; i++) {
        int array = array_of_result(p, &p->k->sink[i]);
        if (is_drained(nest, i) && !p->k->sink[i].operand && is_pack_of(p, array))
            FILL(out, "$type $pack;\n", { "type", pack_type(p, local_type(p->k->sink[i].node->value->type.dtype)) },
                 { "pack", p->pack_name[array] });
    }
}

static void write_pack_stores(const Launch *p, const Nest *nest, FILE *out)
{
    for (int i = 0; i < p->k->nsinks; i++) {
        int array = array_of_result(p, &p->k->sink[i]);
        if (!is_drained(nest, i) || p->k->sink[i].operand || !is_pack_of(p, array))
            continue;
        const char *to = pack_address(p, array), *pack = p->pack_name[array];
        const char *text = has_tail(p)
                               ? arena_text(&p->k->m->arena, "rt_store_some(%s, %s, %s);\n", to, pack, use(p->count))
                               : arena_text(&p->k->m->arena, "rt_store_pack(%s, %s);\n", to, pack);
        write_guarded(p, first_only(p, p->k->array[array].dims), text, out);
    }
}

/* --- One pack ------------------------------------------------------------------------------------- */

static void write_sums(Launch *p, const Nest *nest, FILE *out)
{
    RowKernel *k = p->k;
    for (int i = 0; i < k->nnodes; i++)
        if (is_summed(nest, &k->node[i])) {
            const Node *operand = find_node(k, arg(k->node[i].op, 0));
            write_guarded(p, first_only(p, operand->dims), fold_text(p, &k->node[i], k->node[i].name, operand->text),
                          out);
        }
    for (int i = 0; i < p->ncolumns; i++) {
        const Sink *sink = p->column[i].sink;
        if (!is_drained(nest, (int)(sink - k->sink)))
            continue;
        Text add;
        open_text(&add);
        add_to_column(p, &p->column[i], sink->operand->text, add.out);
        write_guarded(p, first_only(p, sink->operand->dims), close_text(&k->m->arena, &add), out);
    }
}

/* Stores are last: a result may have the storage of a parameter. */
static char *element_lines(Launch *p, const Nest *nest)
{
    RowKernel *k = p->k;
    Text text;
    open_text(&text);
    for (int i = 0; i < k->nnodes; i++) {
        Node *node = &k->node[i];
        if (!node->uses || !is_in_loops(nest, node))
            continue;
        if (node->op)
            write_node(k, &p->region, node, text.out);
        else
            write_element(p, node, text.out);
    }
    write_sums(p, nest, text.out);
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(nest, i) && !k->sink[i].operand)
            write_packed_result(p, &k->sink[i], text.out);
    return close_text(&k->m->arena, &text);
}

void write_pack(Launch *p, int phase, FILE *out)
{
    const Nest nest = nest_of(p, phase);
    count_all_uses(&nest);
    write_pack_loads(p, out);
    write_result_packs(p, &nest, out);
    char *lines = element_lines(p, &nest);
    bool in_registers = false;
    for (int i = 0; i < p->k->narrays; i++)
        in_registers |= p->in_registers[i];
    bool in_packs = p->vector && (p->width > 1 || in_registers || p->iterations);
    fputs(in_packs ? each_element(p, true, lines) : lines, out);
    write_pack_stores(p, &nest, out);
}

/* --- One row -------------------------------------------------------------------------------------- */

/* Values with one element per row, in the phase in which they can be computed. */
void write_phase_values(Launch *p, int phase, FILE *out)
{
    for (int i = 0; i < p->k->nnodes; i++) {
        Node *node = &p->k->node[i];
        if (!node->is_wanted || is_in_pack(p, node) || node->phase != phase || is_scalar(node) || node->is_column ||
            is_read_ahead(p, node))
            continue;
        if (node->is_reduction)
            node->text = node->name; /* summed by the previous phase */
        else
            write_node(p->k, &p->region, node, out);
    }
}

/* Results with one element per row, stored by the first thread. */
void write_row_results(Launch *p, FILE *out)
{
    Text text;
    open_text(&text);
    for (int i = 0; i < p->ncolumns; i++)
        if (!is_in_pack(p, p->column[i].sink->operand))
            add_to_column(p, &p->column[i], p->column[i].sink->operand->text, text.out);
    for (int i = 0; i < p->k->nsinks; i++) {
        const Sink *sink = &p->k->sink[i];
        if (!p->has[i] || sink->operand || is_in_pack(p, sink->node))
            continue;
        write_result(p->k, &p->region, sink, stored_text(p->k, sink), text.out);
    }
    char *lines = close_text(&p->k->m->arena, &text);
    if (*lines)
        write_guarded(p, p->mapping == MAP_ROWS ? "lane == 0" : "", lines, out);
}
