/* repeat_loads.c -- the FLOPs of the repeats whose copies an axis splits: see repeat_loads.h. */
#include "repeat_loads.h"

#include "cost/cost.h"
#include "map.h"
#include "rank_layout.h"
#include "split_loop.h"
#include "uses.h"

typedef struct {
    Module *m;
    int axis;
    RepeatLoads *loads;
    Map seen;
} Weighing;

static Name copies_run(const Op *op) { return info(op)->family == CONTROL ? looped_dim(op) : NULL; }

/* Does the rule split the copies that the op runs? */
static bool is_rule_of(const ShardRule *rule, const Op *op)
{
    return copies_run(op) && rule->dims.name[0] == copies_run(op);
}

/* The number of the repeat whose copies the op runs, for all chunks that of the first one; -1: none of the axis. */
static int repeat_run(const Weighing *b, const Op *op)
{
    int number = 0;
    for (const ShardRule *rule = b->m->rules; rule; rule = rule->next) {
        number += rule->axis == b->axis && rule->joined;
        if (rule->axis == b->axis && is_rule_of(rule, op))
            return number;
    }
    return -1;
}

static bool runs_copies(const Weighing *b, const Op *op) { return repeat_run(b, op) >= 0; }

int64_t copies_in(const Module *m, const ShardRule *rule)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (is_rule_of(rule, op))
                return op->attrs.dims.dim[0].size;
    return 0;
}

ShardRule *next_chunk(const Module *m, ShardRule *rule, int axis)
{
    while (rule && (rule->axis != axis || !copies_in(m, rule)))
        rule = rule->next;
    return rule;
}

/* All chunks but the first one have the same copies. */
static bool is_first_chunk(const Weighing *b, const Op *op)
{
    return b->loads->repeats > 1 || is_rule_of(next_chunk(b->m, b->m->rules, b->axis), op);
}

static double flops_of(const Weighing *b, const Op *op)
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
static void weigh_beside_copies(Weighing *b, const Func *f)
{
    Map before = { .arena = &b->m->arena }; /* op -> the number of the repeat, + 1 */
    for (int repeat = 0; repeat < b->loads->repeats; repeat++) {
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
            b->loads->beside[number        ? number - 1
                             : of_backward ? of_backward - 1
                                           : b->loads->repeats] += flops_of(b, op);
        else
            b->loads->copy[repeat] += is_first_chunk(b, op) ? flops_run(b->m, find_func(b->m, op->attrs.callee)) : 0;
    }
}

/* Once for each function in which the copies run; not inside of them. */
static void weigh(Weighing *b, const Func *f)
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

static int count_repeats(const Module *m, ShardRule *first, int axis)
{
    int count = 1;
    for (const ShardRule *rule = first; rule; rule = next_chunk(m, rule->next, axis))
        count += rule->joined;
    return count;
}

RepeatLoads weigh_repeats(Module *m, int axis)
{
    ShardRule *rule = next_chunk(m, m->rules, axis);
    const int repeats = rule && m->axis_size[axis] <= MAX_SET_RANKS ? count_repeats(m, rule, axis) : 0;
    RepeatLoads loads = { .repeats = repeats > MAX_REPEATS ? 0 : repeats };
    Weighing b = { .m = m, .axis = axis, .loads = &loads, .seen.arena = &m->arena };
    for (int i = 0; i < loads.repeats; i++, rule = next_chunk(m, rule->next, axis)) {
        loads.dim[i] = rule->dims.name[0];
        loads.copies[i] = copies_in(m, rule);
    }
    if (loads.repeats)
        weigh(&b, func_with_role(m, STEP));
    return loads;
}
