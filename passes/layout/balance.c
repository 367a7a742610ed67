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
    Name dim;                 /* that counts the copies of the chunk */
    double copy, first, last; /* FLOPs of one copy of any chunk, and of what is before and after all */
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

/* The parts of the ranks of a chunk; NULL: all are alike.  Each stage gets one copy at first.  Of equally good ones the
 * later stage gets a copy: it keeps fewer micro-batches.  before, after: FLOPs beside the copies, on the first and the
 * last stage of the chunk. */
static Name balanced_parts(const Balance *b, int64_t copies, int ranks, double before, double after, bool reversed)
{
    const double copy = b->copy > 0 ? b->copy : 1;
    int64_t stage[MAX_STAGES], part[MAX_STAGES];
    bool alike = true;
    for (int i = 0; i < ranks; i++)
        stage[i] = 1;
    for (int64_t left = copies - ranks; left > 0; left--) {
        int least = 0;
        double least_flops = 0;
        for (int i = 0; i < ranks; i++) {
            const double flops = copy * (double)stage[i] + (i == 0 ? before : 0) + (i == ranks - 1 ? after : 0);
            if (i == 0 || flops <= least_flops)
                least = i, least_flops = flops;
        }
        stage[least]++;
    }
    for (int i = 0; i < ranks; i++) {
        alike &= stage[i] == stage[0];
        part[reversed ? ranks - 1 - i : i] = stage[i];
    }
    return alike && !reversed ? NULL : parts_text(b->m, part, ranks);
}

/* Is there a chunk among these rules? */
static bool has_chunk(const Module *m, const ShardRule *rules, const ShardRule *end, int axis)
{
    for (const ShardRule *rule = rules; rule != end; rule = rule->next)
        if (rule->axis == axis && copies_in(m, rule))
            return true;
    return false;
}

void balance_stages(Module *m)
{
    const Func *step = func_with_role(m, STEP);
    if (pipeline_axis(m) >= 0 || !step) /* laid out already */
        return;
    for (ShardRule *rule = m->rules; rule; rule = rule->next) {
        Balance b = { .m = m, .axis = rule->axis, .dim = rule->dims.name[0], .seen.arena = &m->arena };
        const int64_t copies = copies_in(m, rule), ranks = m->axis_size[rule->axis];
        if (!copies || copies < ranks || ranks > MAX_STAGES || rule->parts)
            continue;
        const bool is_first = !has_chunk(m, m->rules, rule, rule->axis);
        const bool is_last = !has_chunk(m, rule->next, NULL, rule->axis);
        weigh(&b, step);
        rule->parts =
            balanced_parts(&b, copies, (int)ranks, is_first ? b.first : 0, is_last ? b.last : 0, rule->reversed);
    }
}
