/* early.c -- starts the reductions of a pipeline's gradients inside its loop over micro-batches: those of a chunk as
 * soon as all micro-batches have passed it. */
#include "micro.h"
#include "overlap.h"
#include "schedule/slots.h"

/* Has the function only kernels that compute element by element?  They have no memory of their own. */
static bool is_elementwise(const Module *m, const Func *f)
{
    bool good = true;
    for (const Op *op = f->first; op && good; op = op->next) {
        const Func *callee = called_by(m, op);
        good = callee ? is_elementwise(m, callee) : info(op)->family == POINTWISE || info(op)->family == LEAF;
    }
    return good;
}

/* The cast of what the loop returns to the dtype in which it is sent, of all copies or of each; NULL: there is none. */
static Op *cast_before(const Module *m, const Op *loop, const Op *op)
{
    Op *cast = arg(op, 0)->def;
    const bool may = cast && cast->attrs.callee && cast->args.count == 1 && cast->results.count == 1 &&
                     arg(cast, 0)->def == loop && is_elementwise(m, find_func(m, cast->attrs.callee));
    return may ? cast : NULL;
}

/* The chunk whose parts make the operand of a reduction complete; -1: none, or the reduction is one over stages. */
static int chunk_of(Module *m, const MicroParts *parts, const Op *loop, const Op *op)
{
    if (!op->attrs.started || op->attrs.purpose != GRADIENT || op->attrs.axis >> m->kind_axis & 1)
        return -1;
    const Op *cast = cast_before(m, loop, op);
    const Value *sum = arg(cast ? cast : op, 0);
    return sum->def == loop ? chunk_of_result(parts, index_of(&loop->results, sum)) : -1;
}

/* A message whose operands one chunk makes starts as soon as this chunk has ended on the rank, others have not; what is
 * sent in another dtype is cast then. */
void start_early(Module *m, Func *step)
{
    MicroParts parts;
    const Op *loop = step ? scheduled_parts(m, &parts) : NULL;
    for (Op *first = loop ? loop->next : NULL, *after; first; first = after) {
        after = after_message(first);
        const int chunk = chunk_of(m, &parts, loop, first);
        bool may = chunk >= 0;
        for (const Op *op = first; op != after; op = op->next)
            may = may && chunk_of(m, &parts, loop, op) == chunk;
        for (Op *op = first; may && op != after; op = op->next) {
            Op *cast = cast_before(m, loop, op);
            op->attrs.early = true;
            if (cast)
                cast->attrs.early = true;
        }
    }
}
