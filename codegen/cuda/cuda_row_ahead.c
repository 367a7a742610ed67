/* cuda_row_ahead.c -- a block that sums columns reads its next row before it computes the present one, so that memory
 * is not idle meanwhile.
 *
 *     RtPack<rt_bf16, 8> x_next[1];
 *     float mean_next;
 *     const auto read_row = [&](const int item) {
 *         x_next[0] = rt_load_pack<8>(x + item * 768 + lane * 8);
 *         mean_next = mean[item];
 *     };
 *     read_row(first);
 *     for (int item = first; item < rows; item += step) {
 *         const float mean_row = mean_next;
 *         x_pack[0] = x_next[0];
 *         if (item + step < rows)
 *             read_row(item + step);
 *         ...
 */
#include "cuda_row.h"
#include "templates.h"

bool is_read_ahead(const Launch *p, const Node *node)
{
    return p->reads_ahead && !node->op && node->is_wanted && node->dims && !(node->dims & p->region.inner);
}

/* The element that each row has of such an array. */
static void write_next_values(Launch *p, FILE *declarations, FILE *loads)
{
    RowKernel *k = p->k;
    for (int i = 0; i < k->nnodes; i++) {
        const Node *node = &k->node[i];
        if (!is_read_ahead(p, node))
            continue;
        const Array *array = &k->array[node->array];
        const DType dtype = node->value->type.dtype;
        const char *name = p->next_name[node->array];
        FILL(declarations, "$type $name;\n", { "type", local_type(dtype) }, { "name", name });
        FILL(loads, "$name = $text;\n", { "name", name },
             { "text", load_text(k, dtype, array->name, index_text(k, &p->region, array->dims, array->stride)) });
    }
}

void write_row_packs(const Launch *p, const char *const names[], FILE *out)
{
    for (int i = 0; i < p->k->narrays; i++)
        if (p->in_registers[i])
            FILL(out, "RtPack<$type, $width> $name[$iterations];\n",
                 { "type", element_type(p->k->array[i].value->type.dtype) }, { "width", number(p, p->width) },
                 { "name", names[i] }, { "iterations", number(p, p->iterations) });
}

void write_first_row(Launch *p, const char *block, FILE *out)
{
    Text packs, loads;
    open_text(&packs);
    open_text(&loads);
    write_row_packs(p, p->next_name, packs.out);
    write_iterations(p, write_register_loads, p->next_name, loads.out);
    write_next_values(p, packs.out, loads.out);
    char *reads = close_text(&p->k->m->arena, &loads);
    FILL(out, cuda_ahead_template, { "packs", close_text(&p->k->m->arena, &packs) }, { "name", p->read_name },
         { "type", p->index_type }, { "loads", with_indices(p, p->item, p->items, false, reads) }, { "block", block },
         { "at_once", number(p, rows_at_once(p)) }, { "rows", number(p, iterations_of(p, p->items)) });
}

void write_next_row(const Launch *p, FILE *out)
{
    Text copies;
    open_text(&copies);
    for (int i = 0; i < p->k->nnodes; i++) {
        Node *node = &p->k->node[i];
        if (!is_read_ahead(p, node))
            continue;
        write_local(p->k, local_type(node->value->type.dtype), node->name, p->next_name[node->array], out);
        node->text = node->name;
    }
    for (int i = 0; i < p->k->narrays; i++)
        if (p->in_registers[i])
            FILL(copies.out, "$to[iteration] = $from[iteration];\n", { "to", p->pack_name[i] },
                 { "from", p->next_name[i] });
    FILL(out, cuda_next_template, { "iterations", number(p, p->iterations) },
         { "copies", close_text(&p->k->m->arena, &copies) }, { "name", p->read_name },
         { "step", number(p, p->row_blocks * rows_at_once(p)) }, { "rows", number(p, iterations_of(p, p->items)) });
}
