/* beside.c -- puts a kernel that only sums operands of products, over the dims that these sum over as well, before the
 * products: GPUs compute both at once (codegen/cuda/cuda_sums.c).
 *
 *   %db = call %dy {callee=k.sum}           =>     ...
 *   ...                                            %db = call %dy {callee=k.sum}
 *   %dw = call %dy, %x {callee=k.dot}              %dw = call %dy, %x {callee=k.dot}
 */
#include "epilogue.h"
#include "fuse.h"
#include "needed.h"

/* Does a product of the kernel that `op` calls read this value, and sum over the dims of `sum`? */
static bool multiplies(const Func *kernel, const Op *op, const Value *value, const Op *sum)
{
    const int at = index_of(&op->args, value);
    for (const Op *dot = at < 0 ? NULL : kernel->first; dot; dot = dot->next)
        if (info(dot)->family == PRODUCT && index_of(&dot->args, kernel->params.at[at]) >= 0)
            return sum_over_same_dims(dot, sum);
    return false;
}

/* Is it a call of products that also sum the operands of `call` over the dims of `sum`? */
static bool sums_alike(Module *m, const Op *op, const Op *call, const Op *sum)
{
    const Func *kernel = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    bool good = kernel && kernel->role == KERNEL && ranks_running(m, op) == ranks_running(m, call);
    for (int i = 0; i < call->args.count && good; i++)
        good = multiplies(kernel, op, arg(call, i), sum);
    return good;
}

static bool reads_result(const Op *op, const Op *call)
{
    for (int i = 0; i < call->results.count; i++)
        if (index_of(&op->args, call->results.at[i]) >= 0)
            return true;
    return false;
}

/* The product before which the sum can stand: one that comes before it, or after it and before all of its readers. */
static Op *product_beside(Module *m, const Func *f, const Op *call, const Op *sum)
{
    bool is_after = false;
    for (Op *op = f->first; op; op = op->next) {
        is_after |= op == call;
        if (is_after && reads_result(op, call))
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
        const Op *sum = lone_sums(m, op);
        Op *product = sum ? product_beside(m, f, op, sum) : NULL;
        if (!product)
            continue;
        op->attrs.beside = true;
        remove_op(f, op);
        insert_op(f, op, product);
    }
}
