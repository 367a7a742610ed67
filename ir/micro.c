/* micro.c -- see micro.h. */
#include "micro.h"

#include "split_loop.h"

Op *micro_loop(const Module *m)
{
    const Func *step = func_with_role(m, STEP);
    for (Op *op = step ? step->first : NULL; op; op = op->next) {
        const Func *callee = op->attrs.callee && op->attrs.dims.count ? find_func(m, op->attrs.callee) : NULL;
        if (callee && (is_in_schedule(op) || has_split_loop(callee)))
            return op;
    }
    return NULL;
}

Op *scheduled_loop(const Module *m)
{
    Op *loop = micro_loop(m);
    return is_in_schedule(loop) ? loop : NULL;
}

bool is_part_of_micro(const Module *m, const Func *f)
{
    const Op *loop = scheduled_loop(m);
    for (const Op *op = loop ? find_func(m, loop->attrs.callee)->first : NULL; op; op = op->next)
        if (op->attrs.callee == f->name)
            return true;
    return false;
}
