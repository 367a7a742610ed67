/* beside.c -- puts a kernel that only sums an operand of a product, over the dims that the product sums over as well,
 * before that product: GPUs compute both at once (codegen/cuda/cuda_sums.c).
 *
 *   %db = call %dy {callee=k.sum}           =>     ...
 *   ...                                            %db = call %dy {callee=k.sum}
 *   %dw = call %dy, %x {callee=k.dot}              %dw = call %dy, %x {callee=k.dot}
 */
#include "epilogue.h"
#include "fuse.h"
#include "stages.h"

/* Is it a call of a product that also sums the operand of `call` over the dims of `sum`? */
static bool sums_alike(Module *m, const Op *op, const Op *call, const Op *sum)
{
    const Func *kernel = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    const int at = index_of(&op->args, arg(call, 0));
    if (!kernel || kernel->role != KERNEL || at < 0 || stages_running(m, op) != stages_running(m, call))
        return false;
    for (const Op *dot = kernel->first; dot; dot = dot->next)
        if (info(dot)->family == PRODUCT && index_of(&dot->args, kernel->params.at[at]) >= 0)
            return sum_over_same_dims(dot, sum);
    return false;
}

/* The product before which the sum can stand: one that comes before it, or after it and before all of its readers. */
static Op *product_beside(Module *m, const Func *f, const Op *call, const Op *sum)
{
    bool is_after = false;
    for (Op *op = f->first; op; op = op->next) {
        is_after |= op == call;
        if (is_after && index_of(&op->args, result(call)) >= 0)
            return NULL;
        if (op != call && sums_alike(m, op, call, sum))
            return op;
    }
    return NULL;
}

void put_sums_beside_products(Module *m, Func *f)
{
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        const Op *sum = lone_sum(m, op);
        Op *product = sum ? product_beside(m, f, op, sum) : NULL;
        if (!product)
            continue;
        remove_op(f, op);
        insert_op(f, op, product);
    }
}
