/* cuda_rounded.c -- products of 8 bits that round their operands themselves, as runtime/cuda/eight_bits.c computes
 * them.
 *
 * Whether a product is computed so is known when a trainer starts, by its number: so it must be possible for each call
 * with that number, whatever the addresses. */
#include "blocks.h"
#include "cuda_library.h"

enum { ALIGNED = 16 }; /* bytes, of all matrices */

static bool same_strides(const Value *x, const Value *y)
{
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dim[i].padded > 1 && x->storage->stride[i] != stride_of(y, x->type.dim[i].name))
            return false;
    return true;
}

static bool is_aligned(const Module *m, const Op *op, int operand)
{
    return operand < 0 || is_address_aligned(m, op, arg(op, operand), ALIGNED);
}

static bool is_result_aligned(const Module *m, const Op *op, int number)
{
    return number < 0 || is_address_aligned(m, op, op->results.at[number], ALIGNED);
}

bool cuda_rounds_operands(Module *m, const Op *op, const Product *p)
{
    const RtProductShape *s = &p->shape;
    if (p->from[0] < 0 || p->naive || p->nloops || s->batch > 1 || s->block != E4M3_BLOCK || s->counted ||
        (p->dot->attrs.across && !s->squares))
        return false;
    const int at[] = { p->a, p->b };
    bool good = is_aligned(m, op, p->copied) && is_aligned(m, op, p->at) && is_result_aligned(m, op, p->before) &&
                is_result_aligned(m, op, p->c);
    for (int i = 0; i < 2; i++)
        good = good && same_strides(arg(op, at[i]), arg(op, p->from[i])) && is_aligned(m, op, at[i]) &&
               is_aligned(m, op, p->from[i]);
    return good;
}
