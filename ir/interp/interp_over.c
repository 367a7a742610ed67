/* interp_over.c -- the reference interpreter's rule for a kernel whose result has the memory of its operand. */
#include "interp_shards.h"

/* Is it a reduction along the kernel's rows, and does the kernel visit each row of the parameter once, since it has no
 * other dims? */
static bool is_of_one_row(const Func *kernel, const Op *op, const Value *param)
{
    if (info(op)->family != REDUCTION)
        return false;
    for (int i = 0; i < arg(op, 0)->type.rank; i++) {
        const Name dim = arg(op, 0)->type.dim[i].name;
        if (find_dim(&result(op)->type, dim) < 0 && !has_name(&kernel->inner, dim))
            return false;
    }
    for (const Op *other = kernel->first; other; other = other->next)
        for (int i = 0; i < result(other)->type.rank; i++)
            if (find_dim(&param->type, result(other)->type.dim[i].name) < 0)
                return false;
    return true;
}

bool is_read_after_writing(Interp *in, const Func *kernel, Value *param)
{
    Values derived = { 0 };
    push_value(&in->arena, &derived, param);
    for (const Op *op = kernel->first; op; op = op->next) {
        bool reads = false;
        for (int i = 0; i < op->args.count; i++)
            reads |= index_of(&derived, arg(op, i)) >= 0;
        if (reads && is_of_one_row(kernel, op, param))
            continue;
        if (reads && (info(op)->family != POINTWISE || result(op)->type.rank != param->type.rank))
            return true;
        for (int i = 0; i < op->results.count && reads; i++)
            push_value(&in->arena, &derived, op->results.at[i]);
    }
    return false;
}
