/* cost.c -- execution counts of ops in a step, their work, and the bytes that collectives send. */
#include "cost.h"

#include "flight.h"
#include "needed.h"
#include "split_loop.h"

const char *precision_name(int number) { return number == E4M3 ? "e4m3" : dtype_name[number]; }

/* --- Ops that run ------------------------------------------------------------------------------- */

static RankSet ranks_held(const Module *m, const Op *op)
{
    const RankSet held = op->results.count ? result(op)->type.on : (RankSet){ 0 };
    return (RankSet){ held.at, held.at ? held.axis : m->needed ? m->kind_axis : -1 };
}

uint64_t ranks_that_run(const Module *m, const Func *f, const Op *op, uint64_t around)
{
    if (f->role == KERNEL) /* it is counted at its call */
        return around;
    const RankSet held = ranks_held(m, op);
    if (held.axis < 0)
        return around;
    return around & ranks_of_axis(m, held.axis) & (m->needed ? ranks_running(m, op) : held.at);
}

/* The share of those ranks that run f which run an op of it: those of its own ranks, `on`. */
static double share_of_ranks(const Module *m, const Func *f, const Op *op, uint64_t around, uint64_t *on)
{
    const int axis = f->role == KERNEL ? -1 : ranks_held(m, op).axis;
    *on = ranks_that_run(m, f, op, around);
    if (axis < 0)
        return 1;
    const uint64_t all = ranks_of_axis(m, axis);
    return *on ? __builtin_popcountll(*on) / (double)__builtin_popcountll(around & all) : 0;
}

/* The iterations of a call or loop on a rank that runs it, in the mean: ranks may run different numbers. */
static double mean_iterations(const Module *m, const Op *op)
{
    return is_split_loop(op) ? (double)op->attrs.dims.dim[0].size / __builtin_popcountll(ranks_passed(m, op).at)
                             : (double)rank_iterations(m, op);
}

typedef struct {
    const Module *m;
    CostVisit visit;
    void *context;
} Visit;

/* f is called `times` times on these ranks, `last` of them last iterations, which start nothing for the next one. */
static void visit_times(const Visit *v, const Func *f, uint64_t ranks, double times, double last)
{
    const Module *m = v->m;
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
        uint64_t on;
        const double share = share_of_ranks(m, f, op, ranks, &on);
        v->visit(v->context, f, op, (handed_on(f, op) < 0 ? times : times - last) * share);
        if (callee)
            visit_times(v, callee, on, times * share * mean_iterations(m, op), times);
    }
}

void visit_program(const Module *m, const Func *f, CostVisit visit, void *context)
{
    visit_times(&(Visit){ m, visit, context }, f, ALL_RANKS, 1, 0);
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

static bool runs_on_one_rank(const Module *m, const Op *op)
{
    const uint64_t on = m->needed ? ranks_running(m, op) & ranks_of_axis(m, m->kind_axis) : 0;
    return on && !(on & (on - 1));
}

/* The axis of the ranks in whose loop a function runs, or of which one alone calls it, as a set; 0: none. */
static Axes axes_around(const Module *m, const Func *f)
{
    for (const Func *caller = m->funcs; caller; caller = caller->next)
        for (const Op *op = caller->role == KERNEL ? NULL : caller->first; op; op = op->next)
            if (op->attrs.callee == f->name)
                return is_split_loop(op)         ? 1u << op->attrs.dims.dim[0].split.axis[0]
                       : runs_on_one_rank(m, op) ? 1u << m->kind_axis
                                                 : axes_around(m, caller);
    return 0;
}

Work op_work(Module *m, const Func *f, const Op *op)
{
    Type space;
    double whole = op_flops(m, op);
    if (whole == 0 || !op_space(m, op, &space))
        return (Work){ 0 };
    const RankSet on = result(op)->type.on;
    Axes used = 0;
    for (int i = 0; i < space.rank; i++)
        used |= axes_of_dim(&space.dim[i]);
    Work work = { .rank = whole / (double)count_ranks(m, used) };
    for (int i = 0; i < op->args.count; i++) /* each rank has a term of its own */
        used |= arg(op, i)->type.partial;
    used |= on.at ? 1u << on.axis : f && m->kind_axis >= 0 ? axes_around(m, f) : 0; /* each has other work */
    work.axes = ~used & ((1u << m->naxes) - 1);
    work.alike = work.rank * (1 - 1 / (double)count_ranks(m, work.axes));
    return work;
}

typedef struct {
    Module *m;
    double flops;
} WorkSum;

static void add_flops(void *context, const Func *f, const Op *op, double times)
{
    WorkSum *sum = context;
    sum->flops += op_work(sum->m, NULL, op).rank * times;
}

double flops_run(Module *m, const Func *f)
{
    WorkSum sum = { .m = m };
    visit_program(m, f, add_flops, &sum);
    return sum.flops;
}

/* --- Messages ----------------------------------------------------------------------------------- */

Traffic op_traffic(const Module *m, const Op *op)
{
    int64_t before = local_bytes(m, &arg(op, 0)->type), after = local_bytes(m, &result(op)->type);
    const RankSet on = arg(op, 0)->type.on, to = result(op)->type.on; /* these alone, if they are the group */
    const bool moves = info(op)->traits & MOVES, among = on.at && (moves || op->attrs.axis >> on.axis & 1);
    const uint64_t ranks = !moves ? on.at : to.at ? on.at | to.at : ranks_of_axis(m, on.axis);
    Traffic traffic = { .ranks = among ? __builtin_popcountll(ranks) : count_ranks(m, op->attrs.axis),
                        .volume = (double)(before > after ? before : after) };
    if (op->kind == OP_all_reduce) /* a reduce-scatter, and an all-gather */
        traffic.volume *= 2;
    traffic.sent = op->kind == OP_rotate ? traffic.volume : traffic.volume * (1 - 1 / (double)traffic.ranks);
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
