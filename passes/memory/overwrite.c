/* overwrite.c -- operands that an op may overwrite with its results, for the memory pass.
 *
 * Only a kernel that reads and writes element by element, or reads a row before it writes it, on a tensor of the same
 * dims; a function that does so, slice by slice; ops that are IN_PLACE; and a sum that is gone on with.
 */
#include "epilogue.h"
#include "memory.h"
#include "storage.h"

#include <stdint.h>

static bool has_family(const Func *kernel, Family family)
{
    for (const Op *op = kernel->first; op; op = op->next)
        if (info(op)->family == family)
            return true;
    return false;
}

/* Does the op read a view of the value: with other strides, or a part? */
static bool reads_view_of(const Op *op, const Value *value)
{
    for (int i = 0; i < op->args.count; i++)
        if (arg(op, i) != value && shown_by(arg(op, i)) == value)
            return true;
    return false;
}

/* Is the op that computes the result the last reader of the value, which it may overwrite? */
static bool is_last_over(const Module *m, Map *lifetimes, const Func *f, const Value *result, const Value *value)
{
    const Op *op = result->def;
    int at = op ? index_of(&op->args, value) : -1;
    if (at < 0 || reads_view_of(op, value))
        return false;
    const Lifetimes *own = lifetimes_of(m, lifetimes, f);
    return later(&own->last, value, -1) + 1 == (intptr_t)map_get(&own->number, op) &&
           may_overwrite(m, lifetimes, op, index_of(&op->results, result), at);
}

/* Is the value, which a kernel computes, an operand of it plus something else? */
static bool is_sum_in_kernel(const Module *m, const Value *value, const Value *operand)
{
    const Op *op = value->def;
    const Func *kernel = op ? kernel_called_by(m, op) : NULL;
    const Op *last = kernel ? kernel->results.at[index_of(&op->results, value)]->def : NULL;
    const int at = last ? index_of(&op->args, operand) : -1;
    return at >= 0 && is_addition(last) && index_of(&last->args, kernel->params.at[at]) >= 0;
}

static bool is_used_once(const Module *m, Map *lifetimes, const Func *f, const Value *value)
{
    return (intptr_t)map_get(&lifetimes_of(m, lifetimes, f)->uses, value) == 1;
}

Value *sum_between(const Module *m, Map *lifetimes, const Func *f, const Value *result, const Value *param)
{
    for (int i = 0; result->def && i < result->def->args.count; i++) {
        Value *sum = arg(result->def, i);
        const Op *loop = sum->def && sum->def->attrs.dims.count ? sum->def : NULL;
        const bool is_carried = loop && index_of(&loop->results, sum) < loop->attrs.carried;
        const bool is_kernels = is_sum_in_kernel(m, result, sum) && is_used_once(m, lifetimes, f, sum) &&
                                (is_sum_in_kernel(m, sum, param) || sum_between(m, lifetimes, f, sum, param));
        if ((is_carried || is_kernels || sum_before(result->def) == sum) &&
            is_last_over(m, lifetimes, f, result, sum) && may_return_over(m, lifetimes, f, sum, param))
            return sum;
    }
    return NULL;
}

bool may_return_over(const Module *m, Map *lifetimes, const Func *f, const Value *result, const Value *param)
{
    return is_last_over(m, lifetimes, f, result, param) || sum_between(m, lifetimes, f, result, param);
}

/* Is the result this parameter plus products: C += A B? */
static bool adds_to(const Func *kernel, int result, int param)
{
    Epilogue term[MAX_TERMS];
    return terms_of(kernel->results.at[result], term) && term[0].added == kernel->params.at[param];
}

/* Does the function see them in the same way: slice by slice, or as what a loop carries, at first and at last, and in
 * no other operand? */
static bool passes_alike(const Op *op, int result, int operand)
{
    if (result >= op->attrs.carried)
        return operand >= op->attrs.carried;
    if (result != operand || op->results.at[result]->type.in_flight)
        return false;
    int times = 0;
    for (int i = 0; i < op->args.count; i++)
        times += arg(op, i) == arg(op, operand);
    return times == 1;
}

bool may_overwrite(const Module *m, Map *lifetimes, const Op *op, int result, int operand)
{
    const Func *kernel = kernel_called_by(m, op), *callee = function_called_by(m, op);
    const Type *written = &op->results.at[result]->type, *read = &arg(op, operand)->type;
    if (written->tier != read->tier)
        return false;
    if (callee)
        return passes_alike(op, result, operand) && same_dims(written, read) &&
               may_return_over(m, lifetimes, callee, callee->results.at[result], callee->params.at[operand]);
    if (sum_before(op))
        return arg(op, operand) == sum_before(op) && same_dims(written, read);
    if (info(op)->traits & IN_PLACE && !op->attrs.started)
        return local_bytes(m, written) == local_bytes(m, read);
    return kernel && !op->attrs.early && same_dims(written, read) &&
           dtype_bytes(written->dtype) == dtype_bytes(read->dtype) &&
           (has_family(kernel, PRODUCT)
                ? adds_to(kernel, result, operand)
                : !has_family(kernel, REDUCTION) ||
                      !is_read_after_results(lifetimes->arena, kernel, kernel->params.at[operand]));
}
