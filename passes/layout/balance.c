/* balance.c -- how many copies of a repeat each stage of a pipeline runs, if the layout does not say.
 *
 * All stages should take equally long: the time of a step is that of the slowest.  What is before the repeat is on the
 * first stage, what is after it on the last one, forward and backward, so these get fewer copies: the FLOPs of a
 * micro-batch are counted from its ops.  Copies are alike, so giving each to the stage that then has least is optimal.
 * A repeat in chunks is several loops, each of which passes all ranks; what is before it is in the first one's first
 * stage, what is after it in the last one's last stage.
 */
#include "balance.h"

#include "cost/cost.h"
#include "map.h"
#include "stages.h"
#include "uses.h"

typedef struct {
    Module *m;
    int axis;                 /* of the pipeline */
    Name dim;                 /* that counts the copies of the first chunk */
    double copy, first, last; /* FLOPs of one copy, and of what is before and after all */
    Map seen;
} Balance;

static Name copies_run(const Op *op)
{
    return info(op)->family == CONTROL && op->attrs.dims.count ? op->attrs.dims.dim[0].name : NULL;
}

/* Does the rule split the copies that the op runs? */
static bool is_rule_of(const ShardRule *rule, const Op *op)
{
    return copies_run(op) && rule->dims.name[0] == copies_run(op);
}

/* Is it the loop of a chunk? */
static bool runs_chunk(const Balance *b, const Op *op)
{
    const ShardRule *rule = b->m->rules;
    while (rule && (rule->axis != b->axis || !is_rule_of(rule, op)))
        rule = rule->next;
    return rule != NULL;
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
        if (runs_chunk(b, op) && !op->attrs.reverse)
            note_with_operands(&before, op);
    for (const Op *op = f->first; op; op = op->next) {
        const bool is_loop = runs_chunk(b, op);
        if ((is_loop && op->attrs.reverse) || reads_one_of(op, &after_backward))
            map_put(&after_backward, op, b);
        if (is_loop)
            b->copy += copies_run(op) == b->dim ? flops_run(b->m, find_func(b->m, op->attrs.callee)) : 0;
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
        is_here |= runs_chunk(b, op);
        if (!runs_chunk(b, op) && callee)
            weigh(b, callee);
    }
    if (is_here)
        weigh_beside_copies(b, f);
}

/* Of a chunk; 0: the rule is about something else. */
static int64_t copies_in(const Module *m, const ShardRule *rule)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (is_rule_of(rule, op))
                return op->attrs.dims.dim[0].size;
    return 0;
}

/* The parts of the ranks of a chunk; NULL: all are alike.  Each stage gets one copy at first.  Of equally good ranks
 * the later stage gets a copy: it keeps fewer micro-batches.  `load`: FLOPs of each rank, of what it runs already. */
static Name balanced_parts(const Balance *b, const ShardRule *rule, int64_t copies, int ranks, double *load)
{
    const double copy = b->copy > 0 ? b->copy : 1;
    int64_t part[MAX_STAGES];
    bool alike = true;
    for (int rank = 0; rank < ranks; rank++)
        part[rank] = 1, load[rank] += copy;
    for (int64_t left = copies - ranks; left > 0; left--) {
        int least = rule->reversed ? ranks - 1 : 0;
        for (int i = 0; i < ranks; i++) {
            const int rank = rule->reversed ? ranks - 1 - i : i;
            least = load[rank] <= load[least] ? rank : least;
        }
        part[least]++;
        load[least] += copy;
    }
    for (int rank = 1; rank < ranks; rank++)
        alike &= part[rank] == part[0];
    return alike && !rule->reversed ? NULL : parts_text(b->m, part, ranks);
}

/* The next rule of a chunk over the axis, from this one on; NULL: there is none. */
static ShardRule *next_chunk(const Module *m, ShardRule *rule, int axis)
{
    while (rule && (rule->axis != axis || !copies_in(m, rule)))
        rule = rule->next;
    return rule;
}

/* What is before all chunks is on the first rank of the first one, what is after them on the last rank of the last. */
static void balance_chunks(Balance *b, ShardRule *first, int ranks)
{
    double load[MAX_STAGES] = { 0 };
    const ShardRule *last = first;
    for (ShardRule *rule = first; rule; rule = next_chunk(b->m, rule->next, b->axis))
        last = rule;
    load[first->reversed ? ranks - 1 : 0] += b->first;
    load[last->reversed ? 0 : ranks - 1] += b->last;
    for (ShardRule *rule = first; rule; rule = next_chunk(b->m, rule->next, b->axis))
        if (!rule->parts && copies_in(b->m, rule) >= ranks)
            rule->parts = balanced_parts(b, rule, copies_in(b->m, rule), ranks, load);
}

void balance_stages(Module *m)
{
    const Func *step = func_with_role(m, STEP);
    if (pipeline_axis(m) >= 0 || !step) /* laid out already */
        return;
    for (int axis = 0; axis < m->naxes; axis++) {
        ShardRule *first = next_chunk(m, m->rules, axis);
        if (!first || m->axis_size[axis] > MAX_STAGES)
            continue;
        Balance b = { .m = m, .axis = axis, .dim = first->dims.name[0], .seen.arena = &m->arena };
        weigh(&b, step);
        balance_chunks(&b, first, (int)m->axis_size[axis]);
    }
}
