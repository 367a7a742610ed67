/* residual.c -- moves the addition of a residual from a kernel into the product before it (C = A B + b + x).
 *
 * A kernel that adds two tensors and stores the sum reads two and writes one, after the product has written one: four
 * tensors are moved.  If the product adds the residual, it reads one and writes one, and the kernel reads one: three.
 * Where the sum is not stored it is three either way; where the residual is not stored otherwise, it would have to be.
 */
#include "fuse.h"

static bool is_in_loop(const Fusion *p, const Op *op)
{
    const FusionGroup *g = group_of(p, op);
    return g && !g->product;
}

/* Is it in memory, whichever loops become one kernel?  Those before and after a product do not. */
static bool is_stored(const Fusion *p, const Value *value)
{
    const Numbers *readers = map_get(&p->readers, value);
    bool stored = !is_in_loop(p, value->def) || map_get(&p->returned, value);
    for (int i = 0; readers && i < readers->count && !stored; i++)
        stored = !is_in_loop(p, p->ops[readers->at[i]]);
    for (int i = readers ? readers->at[0] : p->n; i < p->n && i < readers->at[readers->count - 1] && !stored; i++)
        stored = info(p->ops[i])->family == PRODUCT;
    return stored;
}

/* Results of products with one left operand may be interleaved in memory: they do not lie as the sum does. */
static bool may_be_interleaved(const Fusion *p, const Value *value)
{
    const FusionGroup *g = group_of(p, value->def);
    return g && g->product && !g->adds;
}

/* New state is written over the old state, which a product may read as a whole. */
bool is_worth_adding(const Fusion *p, const Op *add, const Value *residual)
{
    return !may_be_interleaved(p, residual) && !group_of(p, add)->updates && is_stored(p, result(add)) &&
           is_stored(p, residual);
}
