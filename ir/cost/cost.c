/* cost.c -- execution counts of ops in a step, their work, and the bytes that collectives send. */
#include "cost.h"

#include "flight.h"
#include "stages.h"

/* --- Ops that run ------------------------------------------------------------------------------- */

/* f is called `times` times, of which `last` are last iterations, which start nothing for the next one. */
static void visit_times(const Module *m, const Func *f, double times, double last, CostVisit visit, void *context)
{
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
        visit(context, f, op, handed_on(f, op) < 0 ? times : times - last);
        if (callee)
            visit_times(m, callee, times * (double)rank_iterations(m, op), times, visit, context);
    }
}

void visit_program(const Module *m, const Func *f, CostVisit visit, void *context)
{
    visit_times(m, f, 1, 0, visit, context);
}

/* --- Work --------------------------------------------------------------------------------------- */

int64_t count_ranks(const Module *m, Axes axes)
{
    int64_t ranks = 1;
    for (int i = 0; i < m->naxes; i++)
        ranks *= axes >> i & 1 ? m->axis_size[i] : 1;
    return ranks;
}

static Axes axes_of_dim(const Dim *dim)
{
    Axes axes = 0;
    for (int i = 0; i < dim->split.count; i++)
        axes |= 1u << dim->split.axis[i];
    return axes;
}

Work op_work(Module *m, const Op *op)
{
    Type space;
    double whole = op_flops(m, op);
    if (whole == 0 || !op_space(m, op, &space))
        return (Work){ 0 };
    Axes used = 0;
    for (int i = 0; i < space.rank; i++)
        used |= axes_of_dim(&space.dim[i]);
    Work work = { .rank = whole / (double)count_ranks(m, used) };
    for (int i = 0; i < op->args.count; i++) /* each rank has a term of its own */
        used |= arg(op, i)->type.partial;
    work.axes = ~used & ((1u << m->naxes) - 1);
    work.alike = work.rank * (1 - 1 / (double)count_ranks(m, work.axes));
    return work;
}

/* --- Messages ----------------------------------------------------------------------------------- */

Traffic op_traffic(const Module *m, const Op *op)
{
    int64_t before = local_bytes(m, &arg(op, 0)->type), after = local_bytes(m, &result(op)->type);
    Traffic traffic = { .ranks = count_ranks(m, op->attrs.axis), .volume = (double)(before > after ? before : after) };
    if (op->kind == OP_all_reduce) /* a reduce-scatter, and an all-gather */
        traffic.volume *= 2;
    traffic.sent = traffic.volume * (1 - 1 / (double)traffic.ranks);
    return traffic;
}

bool joins_message(const Op *op) { return op->prev && is_one_message(op->prev, op); }

/* --- Where values come from ---------------------------------------------------------------------- */

const Op *origin_of(const Module *m, const Value *value)
{
    const Op *op = value->def;
    const Func *callee = op && op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    const Op *inner = callee ? origin_of(m, callee->results.at[index_of(&op->results, value)]) : NULL;
    return inner && inner->path ? inner : op;
}
