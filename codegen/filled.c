/* filled.c -- dims of rows that a dispatch fills, mostly in part: slots of experts. */
#include "filled.h"
#include "ir/map.h"

/* Kept, since each product asks for each of its dims. */
static void note_filled(Module *m)
{
    m->filled = NEW(&m->arena, Map);
    m->filled->arena = &m->arena;
    for (const Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->first; op; op = op->next) {
            const Dims *dims = &op->attrs.dims;
            if (info(op)->traits & FILLS && !map_get(m->filled, dims->dim[dims->count - 1].name))
                map_put(m->filled, dims->dim[dims->count - 1].name, op);
        }
}

const Op *filled_by(Module *m, Name dim)
{
    if (!m->filled)
        note_filled(m);
    return map_get(m->filled, dim);
}

/* Of one queue: its choices, over the slots of all experts and rounds. */
static double share_of(const Op *fills)
{
    const Type *chosen = &arg(fills, 1)->type;
    double choices = 1, rows = fills->attrs.rounds ? (double)fills->attrs.rounds : 1;
    for (int i = 0; i < fills->attrs.over.count; i++)
        choices *= (double)chosen->dim[find_dim(chosen, fills->attrs.over.name[i])].size;
    for (int i = 0; i < fills->attrs.dims.count; i++)
        rows *= (double)fills->attrs.dims.dim[i].size;
    return choices < rows ? choices / rows : 1;
}

double filled_flops(Module *m, const Op *op)
{
    const double flops = op_flops(m, op);
    for (int i = 0; i < op->args.count && info(op)->traits & CONTRACTS; i++)
        for (int j = 0; j < arg(op, i)->type.rank; j++) {
            const Op *fills = filled_by(m, arg(op, i)->type.dim[j].name);
            if (fills)
                return flops * share_of(fills);
        }
    return flops;
}
