/* filled.c -- dims of rows that a dispatch fills, mostly in part: slots of experts. */
#include "filled.h"
#include "map.h"

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

FilledRows filled_rows(const Op *fills)
{
    const Type *chosen = &arg(fills, 1)->type;
    const Dims *made = &fills->attrs.dims;
    FilledRows filled = { .choices = 1,
                          .experts = made->dim[0].size,
                          .rounds = fills->attrs.rounds ? fills->attrs.rounds : 1 };
    for (int i = 0; i < fills->attrs.over.count; i++)
        filled.choices *= chosen->dim[find_dim(chosen, fills->attrs.over.name[i])].size;
    filled.slots = made->dim[1].size;
    return filled;
}

double filled_share(const Op *fills)
{
    const FilledRows f = filled_rows(fills);
    const double rows = (double)f.experts * (double)f.slots * (double)f.rounds;
    return (double)f.choices < rows ? (double)f.choices / rows : 1;
}

double filled_flops(Module *m, const Op *op)
{
    const double flops = op_flops(m, op);
    for (int i = 0; i < op->args.count && info(op)->traits & CONTRACTS; i++)
        for (int j = 0; j < arg(op, i)->type.rank; j++) {
            const Op *fills = filled_by(m, arg(op, i)->type.dim[j].name);
            if (fills)
                return flops * filled_share(fills);
        }
    return flops;
}
