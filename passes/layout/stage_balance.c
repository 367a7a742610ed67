/* stage_balance.c -- the number of copies of a repeat that each stage of a pipeline runs, if the layout does not say.
 *
 * All stages should take equally long: the time of a step is that of the slowest.  What is before the repeat is on the
 * first stage, what is after it on the last one, forward and backward, so these get fewer copies: the FLOPs of a
 * micro-batch are counted from its ops.  Copies are alike, so giving each to the stage that then has least is optimal.
 * Several repeats that share the stages are one sequence of copies, see stage_shares.h; what stands between two is on
 * the stage where the former ends.  A repeat in chunks is several loops, each of which passes all ranks; what is before
 * it is in the first one's first stage, what is after it in the last one's last stage.
 */
#include "stage_balance.h"

#include "cost/cost.h"
#include "map.h"
#include "rank_layout.h"
#include "split_loop.h"
#include "stage_shares.h"
#include "stages.h"
#include "uses.h"

typedef struct {
    Module *m;
    int axis;                       /* of the pipeline */
    int repeats;                    /* that share the stages */
    double copy[MAX_REPEATS];       /* FLOPs of one copy of each */
    double beside[MAX_REPEATS + 1]; /* of the ops before the first repeat, and after each */
    Map seen;
} Balance;

static Name copies_run(const Op *op) { return info(op)->family == CONTROL ? looped_dim(op) : NULL; }

/* Does the rule split the copies that the op runs? */
static bool is_rule_of(const ShardRule *rule, const Op *op)
{
    return copies_run(op) && rule->dims.name[0] == copies_run(op);
}

/* The number of the repeat whose copies the op runs, for all chunks that of the first one; -1: none of the pipeline's.
 */
static int repeat_run(const Balance *b, const Op *op)
{
    int number = 0;
    for (const ShardRule *rule = b->m->rules; rule; rule = rule->next) {
        number += rule->axis == b->axis && rule->joined;
        if (rule->axis == b->axis && is_rule_of(rule, op))
            return number;
    }
    return -1;
}

static bool runs_copies(const Balance *b, const Op *op) { return repeat_run(b, op) >= 0; }

/* The copies in a chunk; 0: the rule is about something else. */
static int64_t copies_in(const Module *m, const ShardRule *rule)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (is_rule_of(rule, op))
                return op->attrs.dims.dim[0].size;
    return 0;
}

/* The next rule of a chunk over the axis, from this one on; NULL: there is none. */
static ShardRule *next_chunk(const Module *m, ShardRule *rule, int axis)
{
    while (rule && (rule->axis != axis || !copies_in(m, rule)))
        rule = rule->next;
    return rule;
}

/* All chunks but the first one have the same copies. */
static bool is_first_chunk(const Balance *b, const Op *op)
{
    return b->repeats > 1 || is_rule_of(next_chunk(b->m, b->m->rules, b->axis), op);
}

static double flops_of(const Balance *b, const Op *op)
{
    const Func *callee = called_by(b->m, op);
    return op_work(b->m, NULL, op).rank + (callee ? flops_run(b->m, callee) * (double)rank_iterations(b->m, op) : 0);
}

/* The number in the map, plus 1, of an op or its operands: the lowest one; 0: none has one. */
static int lowest_of(const Map *number, const Op *op)
{
    int lowest = (int)(intptr_t)map_get(number, op);
    for (int i = 0; i < op->args.count; i++) {
        const int of_operand = arg(op, i)->def ? (int)(intptr_t)map_get(number, arg(op, i)->def) : 0;
        lowest = of_operand && (!lowest || of_operand < lowest) ? of_operand : lowest;
    }
    return lowest;
}

/* Before the copies of a repeat: ops that its forward loop needs first, and readers of the results of its backward
 * loop. */
static void weigh_beside_copies(Balance *b, const Func *f)
{
    Map before = { .arena = &b->m->arena }; /* op -> the number of the repeat, + 1 */
    for (int repeat = 0; repeat < b->repeats; repeat++) {
        Map needed = { .arena = &b->m->arena };
        for (const Op *op = f->first; op; op = op->next)
            if (repeat_run(b, op) == repeat && !op->attrs.reverse)
                note_with_operands(&needed, op);
        for (const Op *op = f->first; op; op = op->next)
            if (map_get(&needed, op) && !map_get(&before, op))
                map_put(&before, op, (void *)(intptr_t)(repeat + 1));
    }
    Map after_backward = { .arena = &b->m->arena };
    for (const Op *op = f->first; op; op = op->next) {
        const int repeat = repeat_run(b, op);
        if (repeat >= 0 && op->attrs.reverse)
            map_put(&after_backward, op, (void *)(intptr_t)(repeat + 1));
        const int of_backward = lowest_of(&after_backward, op), number = (int)(intptr_t)map_get(&before, op);
        map_put(&after_backward, op, (void *)(intptr_t)of_backward);
        if (repeat < 0)
            b->beside[number ? number - 1 : of_backward ? of_backward - 1 : b->repeats] += flops_of(b, op);
        else
            b->copy[repeat] += is_first_chunk(b, op) ? flops_run(b->m, find_func(b->m, op->attrs.callee)) : 0;
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
        const Func *callee = called_by(b->m, op);
        is_here |= runs_copies(b, op);
        if (!runs_copies(b, op) && callee)
            weigh(b, callee);
    }
    if (is_here)
        weigh_beside_copies(b, f);
}

/* The rules of all chunks.  What is before all of them is on the first rank of the first one, what is after them on the
 * last rank of the last. */
static ChunkLoads find_chunks(const Balance *b, ShardRule *first, ShardRule *rules[])
{
    ChunkLoads c = { .ranks = (int)b->m->axis_size[b->axis], .copy = b->copy[0] > 0 ? b->copy[0] : 1 };
    for (ShardRule *rule = first; rule && c.count < MAX_CHUNKS; rule = next_chunk(b->m, rule->next, b->axis)) {
        c.copies[c.count] = copies_in(b->m, rule);
        c.reversed[c.count] = rule->reversed;
        rules[c.count++] = rule;
    }
    const int last = c.count - 1;
    c.beside[0][c.reversed[0] ? c.ranks - 1 : 0] += b->beside[0];
    c.beside[last][c.reversed[last] ? 0 : c.ranks - 1] += b->beside[1];
    return c;
}

/* NULL: all are alike. */
static Name chunk_text(Module *m, const ChunkLoads *c, int chunk, const int64_t *part)
{
    bool alike = !c->reversed[chunk];
    for (int rank = 0; rank < c->ranks; rank++)
        alike &= part[rank] == part[0];
    return alike ? NULL : parts_text(m, part, c->ranks);
}

static void balance_chunks(const Balance *b, ShardRule *first)
{
    ShardRule *rules[MAX_CHUNKS];
    int64_t part[MAX_CHUNKS][MAX_SET_RANKS];
    const ChunkLoads c = find_chunks(b, first, rules);
    for (int chunk = 0; chunk < c.count; chunk++)
        if (rules[chunk]->parts || c.copies[chunk] < c.ranks)
            return;
    share_chunks(&c, part);
    for (int chunk = 0; chunk < c.count; chunk++)
        rules[chunk]->parts = chunk_text(b->m, &c, chunk, part[chunk]);
}

/* --- Several repeats ------------------------------------------------------------------------------- */

static void balance_repeats(const Balance *b, ShardRule *first)
{
    const int ranks = (int)b->m->axis_size[b->axis];
    ShardRule *rules[MAX_REPEATS];
    int64_t copies[MAX_REPEATS], stage[MAX_SET_RANKS], part[MAX_REPEATS][MAX_SET_RANKS], all = 0, at = 0;
    for (int i = 0; i < b->repeats; i++, first = first->next) {
        rules[i] = first = next_chunk(b->m, first, b->axis);
        copies[i] = copies_in(b->m, first);
        all += copies[i];
    }
    if (rules[0]->parts || all < ranks)
        return;
    double *flops = NEW_ARRAY(&b->m->arena, double, all);
    flops[0] = b->beside[0];
    for (int i = 0; i < b->repeats; i++) {
        for (int64_t copy = 0; copy < copies[i]; copy++)
            flops[at++] += b->copy[i] > 0 ? b->copy[i] : 1;
        flops[at - 1] += b->beside[i + 1];
    }
    share_copies(&b->m->arena, flops, all, ranks, stage);
    cut_repeats(copies, b->repeats, stage, part);
    for (int i = 0; i < b->repeats; i++)
        rules[i]->parts = parts_text(b->m, part[i], ranks);
}

static int count_repeats(const Module *m, ShardRule *first, int axis)
{
    int count = 1;
    for (const ShardRule *rule = first; rule; rule = next_chunk(m, rule->next, axis))
        count += rule->joined;
    return count;
}

/* What the stages along an axis have to share; without repeats: nothing. */
static Balance weighed(Module *m, const Func *step, int axis, ShardRule *first)
{
    Balance b = { .m = m, .axis = axis, .seen.arena = &m->arena };
    const int repeats = first && m->axis_size[axis] <= MAX_SET_RANKS ? count_repeats(m, first, axis) : 0;
    b.repeats = repeats > MAX_REPEATS ? 0 : repeats;
    if (b.repeats)
        weigh(&b, step);
    return b;
}

void balance_stages(Module *m)
{
    const Func *step = func_with_role(m, STEP);
    if (m->kind_axis >= 0 || !step) /* laid out already */
        return;
    for (int axis = 0; axis < m->naxes; axis++) {
        ShardRule *first = next_chunk(m, m->rules, axis);
        const Balance b = weighed(m, step, axis, first);
        if (b.repeats)
            (b.repeats > 1 ? balance_repeats : balance_chunks)(&b, first);
    }
}

StageWeights weigh_stages(Module *m)
{
    StageWeights weights = { 0 };
    const Func *step = func_with_role(m, STEP);
    for (int axis = 0; axis < m->naxes && !weights.repeats; axis++) {
        ShardRule *first = next_chunk(m, m->rules, axis);
        const Balance b = weighed(m, step, axis, first);
        weights.repeats = b.repeats;
        for (int i = 0; i < b.repeats; i++, first = next_chunk(m, first->next, axis)) {
            weights.dim[i] = first->dims.name[0];
            weights.copies[i] = copies_in(m, first);
            weights.copy[i] = b.copy[i];
        }
        for (int i = 0; i <= b.repeats; i++)
            weights.beside[i] = b.beside[i];
    }
    return weights;
}
