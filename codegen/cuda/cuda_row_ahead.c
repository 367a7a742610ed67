/* cuda_row_ahead.c -- a block that sums columns computes one row after another: it reads the next one before it
 * computes this one, so that memory works meanwhile.
 *
 *     RtPack<rt_bf16, 8> x_next[1];
 *     const auto read_row = [&](const int item) { x_next[0] = rt_load_pack<8>(x + item * 768 + lane * 8); };
 *     read_row(first);
 *     for (int item = first; item < rows; item += step) {
 *         x_pack[0] = x_next[0];
 *         if (item + step < rows)
 *             read_row(item + step);
 *         ...
 */
#include "cuda_row.h"
#include "templates.h"

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
    char *reads = close_text(&p->k->m->arena, &loads);
    FILL(out, cuda_ahead_template, { "packs", close_text(&p->k->m->arena, &packs) }, { "name", p->read_name },
         { "type", p->index_type }, { "loads", with_indices(p, p->item, p->reduced, false, reads) }, { "block", block },
         { "at_once", number(p, rows_at_once(p)) }, { "rows", number(p, iterations_of(p, p->reduced)) });
}

void write_next_row(const Launch *p, FILE *out)
{
    Text copies;
    open_text(&copies);
    for (int i = 0; i < p->k->narrays; i++)
        if (p->in_registers[i])
            FILL(copies.out, "$to[iteration] = $from[iteration];\n", { "to", p->pack_name[i] },
                 { "from", p->next_name[i] });
    FILL(out, cuda_next_template, { "iterations", number(p, p->iterations) },
         { "copies", close_text(&p->k->m->arena, &copies) }, { "name", p->read_name },
         { "step", number(p, p->parts * rows_at_once(p)) }, { "rows", number(p, iterations_of(p, p->reduced)) });
}
