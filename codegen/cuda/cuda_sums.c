/* cuda_sums.c -- a sum over the dims that the next product sums over, of one of its operands: the gradient of a bias
 * beside that of the weights.
 *
 *   %db = call %dy {callee=k.h.attn.q.5}                sum %dy {over=batch+seq}
 *   %dw = call %dy, %x, %sum {callee=k.h.attn.q.6}      %sum + dot %dy, %x {over=batch+seq}
 *
 * cuBLASLt computes both in one run (BGRADA, BGRADB), if the sums are contiguous, in the order of the result's rows or
 * columns, and of its type; those of several matrices at equal distances.  Nothing comes between the two, so the memory
 * plan holds for one statement as for two: what either reads or writes lives during both, except for the scratch of the
 * sums, which are computed first if they are computed by their own kernel. */
#include "cuda_sums.h"

#include "cuda_group.h"
#include "extent.h"
#include "ir/epilogue.h"
#include "kinds/kinds.h"
#include "needed.h"

static const Op *neighbour_of(const Op *op, bool before)
{
    do
        op = before ? op->prev : op->next;
    while (op && is_view_only(op));
    return op;
}

/* Are they contiguous, in the order of that axis of the result, whose stride is given? */
static bool lie_along(Module *m, const Value *sums, const Value *c, int64_t count, int64_t stride)
{
    int64_t all = 1;
    bool good = count > 1 && sums->type.dtype == c->type.dtype;
    for (int i = 0; i < sums->type.rank; i++) {
        const Dim *dim = &sums->type.dim[i];
        const int64_t size = loop_size(m, dim);
        good = good && (size == 1 || stride_of(c, dim->name) == sums->storage->stride[i] * stride);
        all *= size;
    }
    return good && all == count;
}

/* cuBLASLt has one vector of sums for each of its matrices, and no other epilogue beside it. */
static bool may_sum(const Product *p)
{
    const RtProductShape *s = &p->shape;
    return !p->naive && p->copied < 0 && !p->nloops && p->terms == 1 && s->k > 1 && !s->has_bias && !s->activation &&
           s->counted == RT_NOT_COUNTED;
}

/* From the first of several operands or results of an op to the next, in elements, if all are at equal distances; else
 * 0. */
static int64_t distance_between(Module *m, const Op *op, const Values *values)
{
    const Value *first = values->at[0];
    const int64_t one = dtype_bytes(first->type.dtype);
    const int64_t bytes = values->count > 1 ? values->at[1]->storage->at - first->storage->at : 0;
    bool good = bytes % one == 0;
    for (int i = 1; i < values->count && good; i++)
        good =
            values->at[i]->storage->at - first->storage->at == i * bytes && keeps_distance(m, op, first, values->at[i]);
    return good ? bytes / one : 0;
}

/* Are the sums those of all matrices of that operand of a product, in this order or in reverse? */
static bool are_of_all(Module *m, const Op *before, const Op *call, int operand, int64_t batch, int64_t stride,
                       ProductSums *sums)
{
    const int count = before->results.count;
    if (count != batch || count > RT_MOST_SUMS)
        return false;
    for (int i = 0; i < count; i++)
        if (index_of(&call->args, arg(before, i)) < 0)
            return false;
    const int64_t between = distance_between(m, before, &before->args);
    sums->between = distance_between(m, before, &before->results);
    sums->reverse = between < 0;
    sums->first = sums->reverse ? before->results.at[count - 1] : before->results.at[0];
    const Value *first = sums->reverse ? arg(before, count - 1) : arg(before, 0);
    if (sums->reverse)
        sums->between = -sums->between;
    return first == arg(call, operand) &&
           (count == 1 || (between == (sums->reverse ? -stride : stride) && between != 0 && sums->between > 0));
}

const Op *sums_before(Module *m, const Op *call, const Product *p, ProductSums *sums)
{
    const Op *before = neighbour_of(call, true), *sum = before ? sums_beside(m, before) : NULL;
    if (!sum || !may_sum(p) || !sum_over_same_dims(sum, p->dot) || ranks_running(m, before) != ranks_running(m, call) ||
        before->attrs.early || call->attrs.early)
        return NULL;
    const RtProductShape *s = &p->shape;
    const Value *c = call->results.at[p->c];
    sums->of = are_of_all(m, before, call, p->a, s->batch, s->a.batch, sums)   ? RT_SUMS_A
               : are_of_all(m, before, call, p->b, s->batch, s->b.batch, sums) ? RT_SUMS_B
                                                                               : RT_NO_SUMS;
    const bool good = sums->of == RT_SUMS_A   ? lie_along(m, sums->first, c, s->m, s->c.row)
                      : sums->of == RT_SUMS_B ? lie_along(m, sums->first, c, s->n, s->c.column)
                                              : false;
    return good ? before : NULL;
}

bool is_run_by_product(Module *m, const Op *sums)
{
    const Op *next = sums_beside(m, sums) ? neighbour_of(sums, false) : NULL;
    const Func *kernel = next && next->attrs.callee ? find_func(m, next->attrs.callee) : NULL;
    Product *products;
    ProductSums of;
    return kernel && kernel->role == KERNEL && is_product_kernel(kernel) &&
           plan_products(m, kernel, next, &products) == 1 && sums_before(m, next, products, &of) == sums;
}
