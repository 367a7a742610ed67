/* balance.c -- how many copies of a repeat each stage of a pipeline runs, if the layout does not say.
 *
 * All stages should take equally long: the time of a step is that of the slowest.  What is before the repeat is on the
 * first stage, what is after it on the last one, forward and backward, so these get fewer copies: the FLOPs of a
 * micro-batch are counted from its ops.  Copies are alike, so giving each to the stage that then has least is optimal.
 */
#include "balance.h"

#include "cost/cost.h"
#include "map.h"
#include "stages.h"
#include "uses.h"

typedef struct {
    Module *m;
    Name dim;                 /* that counts the copies */
    double copy, first, last; /* FLOPs of one copy, and of what is before and after all */
    Map seen;
} Balance;

static bool runs_copies(const Balance *b, const Op *op)
{
    return info(op)->family == CONTROL && op->attrs.dims.count && op->attrs.dims.dim[0].name == b->dim;
}

static double flops_of(const Balance *b, const Op *op)
{
    const Func *callee = op->attrs.callee ? find_func(b->m, op->attrs.callee) : NULL;
    return op_work(b->m, NULL, op).rank + (callee ? flops_run(b->m, callee) * (double)rank_iterations(b->m, op) : 0);
}

static bool reads_one_of(const Op *op, const Map *ops)
{
    for (int i = 0; i < op->args.count; i++)
        if (arg(op, i)->def && map_get(ops, arg(op, i)->def))
            return true;
    return false;
}

/* Before the copies: what a forward loop needs, and what reads the results of a backward one. */
static void weigh_beside_copies(Balance *b, const Func *f)
{
    Map before = { .arena = &b->m->arena }, after_backward = { .arena = &b->m->arena };
    for (const Op *op = f->first; op; op = op->next)
        if (runs_copies(b, op) && !op->attrs.reverse)
            note_with_operands(&before, op);
    for (const Op *op = f->first; op; op = op->next) {
        const bool is_loop = runs_copies(b, op);
        if ((is_loop && op->attrs.reverse) || reads_one_of(op, &after_backward))
            map_put(&after_backward, op, b);
        if (is_loop)
            b->copy += flops_run(b->m, find_func(b->m, op->attrs.callee));
        else if (map_get(&before, op) || map_get(&after_backward, op))
            b->first += flops_of(b, op);
        else
            b->last += flops_of(b, op);
    }
}

/* Once for each function in which the copies run; not inside of them. */
static void weigh(Balance *b, const Func *f)
{
    bool is_here = false;
    if (map_get(&b->seen, f))
        return;
    map_put(&b->seen, f, b);
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(b->m, op->attrs.callee) : NULL;
        is_here |= runs_copies(b, op);
        if (!runs_copies(b, op) && callee)
            weigh(b, callee);
    }
    if (is_here)
        weigh_beside_copies(b, f);
}

static int64_t copies_in(const Balance *b)
{
    for (const Func *f = b->m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (runs_copies(b, op))
                return op->attrs.dims.dim[0].size;
    return 0;
}

/* One for each stage at first.  Of equally good stages the later one gets a copy: it keeps fewer micro-batches. */
static Name balanced_parts(const Balance *b, int64_t copies, int stages)
{
    const double copy = b->copy > 0 ? b->copy : 1;
    int64_t part[MAX_STAGES];
    bool alike = true;
    for (int i = 0; i < stages; i++)
        part[i] = 1;
    for (int64_t left = copies - stages; left > 0; left--) {
        int least = 0;
        double least_flops = 0;
        for (int i = 0; i < stages; i++) {
            const double flops = copy * (double)part[i] + (i == 0 ? b->first : 0) + (i == stages - 1 ? b->last : 0);
            if (i == 0 || flops <= least_flops)
                least = i, least_flops = flops;
        }
        part[least]++;
    }
    for (int i = 1; i < stages; i++)
        alike &= part[i] == part[0];
    return alike ? NULL : parts_text(b->m, part, stages);
}

void balance_stages(Module *m)
{
    const Func *step = func_with_role(m, STEP);
    if (pipeline_axis(m) >= 0 || !step) /* laid out already */
        return;
    for (ShardRule *rule = m->rules; rule; rule = rule->next) {
        Balance b = { .m = m, .dim = rule->dims.name[0], .seen.arena = &m->arena };
        const int64_t copies = copies_in(&b), stages = m->axis_size[rule->axis];
        if (!copies || copies < stages || stages > MAX_STAGES || rule->parts)
            continue;
        weigh(&b, step);
        rule->parts = balanced_parts(&b, copies, (int)stages);
    }
}
