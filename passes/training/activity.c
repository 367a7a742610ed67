/* activity.c -- activity analysis: which values need gradients.
 *
 *   %3 = div %1, %2
 *   %4 = gt %3, %half          no gradient: %3 needs none, though it is made of parameters
 *   %5 = where %4, %a, %b
 *
 * Autodiff computes gradients of values that depend on parameters and that the loss depends on.  An explicit gradient
 * of zero instead of none would become NaN when multiplied by an infinite slope.
 */
#include "autodiff.h"

/* Has operand i a gradient, if the op's result has one? */
static bool passes_gradient(const Op *op, int i)
{
    const OpInfo *row = info(op);
    const bool is_map = row->family == POINTWISE && row->forward;
    return !is_map || row->gradient[i];
}

static bool mark(Map *useful, const Value *value)
{
    if (!is_float(value->type.dtype) || map_get(useful, value))
        return false;
    map_put(useful, value, (void *)value);
    return true;
}

static void mark_func(const Module *m, const Func *f, Map *useful);

/* A carried value that an iteration needs is needed as the result of the previous one. */
static void mark_callee(const Module *m, const Op *op, Map *useful)
{
    const Func *callee = find_func(m, op->attrs.callee);
    for (int i = 0; i < op->results.count; i++)
        if (map_get(useful, op->results.at[i]))
            mark(useful, callee->results.at[i]);
    for (bool again = true; again;) {
        again = false;
        mark_func(m, callee, useful);
        for (int i = 0; i < op->attrs.carried; i++)
            if (map_get(useful, callee->params.at[i]))
                again |= mark(useful, callee->results.at[i]);
    }
    for (int i = 0; i < op->args.count; i++)
        if (map_get(useful, callee->params.at[i]))
            mark(useful, arg(op, i));
}

static bool any_marked(const Values *values, const Map *useful)
{
    for (int i = 0; i < values->count; i++)
        if (map_get(useful, values->at[i]))
            return true;
    return false;
}

static void mark_func(const Module *m, const Func *f, Map *useful)
{
    for (const Op *op = f->last; op; op = op->prev) {
        if (!any_marked(&op->results, useful))
            continue;
        if (info(op)->family == CONTROL)
            mark_callee(m, op, useful);
        for (int i = 0; i < op->args.count && info(op)->family != CONTROL; i++)
            if (passes_gradient(op, i))
                mark(useful, arg(op, i));
    }
}

void find_useful(const Module *m, const Func *model, Map *useful)
{
    for (int i = 0; i < model->results.count; i++)
        mark(useful, model->results.at[i]);
    mark_func(m, model, useful);
}
