/* filled.c -- dims of rows that a dispatch fills, mostly in part: slots of experts. */
#include "filled.h"

const Op *filled_by(const Module *m, Name dim)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (info(op)->traits & FILLS && op->attrs.dims.dim[op->attrs.dims.count - 1].name == dim)
                return op;
    return NULL;
}

Filled filled_rows(const Op *fills)
{
    const Type *chosen = &arg(fills, 1)->type;
    const Dims *made = &fills->attrs.dims;
    Filled filled = { .choices = 1,
                      .experts = made->dim[0].size,
                      .rounds = fills->attrs.rounds ? fills->attrs.rounds : 1 };
    for (int i = 0; i < fills->attrs.over.count; i++)
        filled.choices *= chosen->dim[find_dim(chosen, fills->attrs.over.name[i])].size;
    filled.slots = made->dim[1].size;
    return filled;
}

double filled_share(const Op *fills)
{
    const Filled f = filled_rows(fills);
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
