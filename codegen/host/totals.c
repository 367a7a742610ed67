/* totals.c -- totals of the model: its size, its work. */
#include "totals.h"

#include "filled.h"
#include "sizes.h"

/* --- Work ---------------------------------------------------------------------------------- */

/* Is it a sum of the products of two tensors along these dims, as passes/kernel/rowdot.c writes dots? */
static bool sums_products(const Op *op)
{
    const Op *factor = info(op)->family == REDUCTION && info(op)->over == SUM ? arg(op, 0)->def : NULL;
    bool sums = factor && info(factor)->family == POINTWISE && info(factor)->linear == EACH;
    for (int i = 0; sums && i < op->attrs.over.count; i++)
        sums = find_dim(&arg(factor, 0)->type, op->attrs.over.name[i]) >= 0 &&
               find_dim(&arg(factor, 1)->type, op->attrs.over.name[i]) >= 0;
    return sums && arg(factor, 0) != arg(factor, 1);
}

/* Products and attention of one call, after any pass: callees may be layers or kernels. */
static double forward_flops(Module *m, const Func *f)
{
    double flops = 0;
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = called_by(m, op);
        double iterations = op->attrs.dims.count ? (double)op->attrs.dims.dim[0].size : 1;
        flops += callee                         ? iterations * forward_flops(m, callee)
                 : info(op)->traits & CONTRACTS ? filled_flops(m, op)
                 : sums_products(op)            ? 2 * op_flops(m, arg(op, 0)->def)
                                                : 0;
    }
    return flops;
}

/* Evaluation runs the forward pass on one micro-batch, and no pass changes its products. */
static const Func *forward_of(const Module *m)
{
    const Func *eval = func_with_role(m, EVAL);
    return eval ? eval : func_with_role(m, MODEL);
}

static void find_shape(const Module *m, Totals *totals)
{
    const Train *t = &m->train;
    totals->micro = t->microbatch > 0 ? t->batch / t->microbatch : 1;
    totals->batch = totals->seq = 1;
    if (!m->inputs)
        return;
    const Type *type = &longest_input(m)->type;
    int batch = m->batch ? find_dim(type, m->batch) : -1;
    for (int i = 0; i < type->rank; i++)
        *(i == batch ? &totals->batch : &totals->seq) *= type->dim[i].size;
    if (is_fed_records(m))
        totals->seq = 1;
}

Totals program_totals(Module *m)
{
    Totals totals = { 0 };
    for (const Param *param = m->params; param; param = param->next) {
        totals.parameters += element_count(&param->type);
        totals.tensors += tensor_count(param);
    }
    find_shape(m, &totals);
    const Func *forward = forward_of(m);
    if (forward)
        totals.flops = 3 * forward_flops(m, forward) * (double)totals.micro;
    return totals;
}

/* --- Memory -------------------------------------------------------------------------------- */

int64_t state_bytes(const Module *m)
{
    const Func *step = func_with_role(m, STEP);
    int64_t end = 0;
    for (int i = first_state(step); i < step->params.count; i++) {
        const Value *value = step->params.at[i];
        const bool is_apart = value->type.tier || value->port.kind == PORT_LEFT;
        int64_t after = is_apart ? 0 : value->storage->at + span_bytes(m, value);
        end = after > end ? after : end;
    }
    return end;
}
