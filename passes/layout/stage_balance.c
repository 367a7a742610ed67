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

#include "stage_shares.h"
#include "stages.h"

/* And the rules of all chunks. */
static ChunkLoads find_chunks(Module *m, int axis, const RepeatLoads *loads, ShardRule *first, ShardRule *rules[])
{
    ChunkLoads c = { .ranks = (int)m->axis_size[axis], .loads = loads };
    for (ShardRule *rule = first; rule && c.count < MAX_CHUNKS; rule = next_chunk(m, rule->next, axis)) {
        c.copies[c.count] = copies_in(m, rule);
        c.reversed[c.count] = rule->reversed;
        rules[c.count++] = rule;
    }
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

static void balance_chunks(Module *m, int axis, const RepeatLoads *loads, ShardRule *first)
{
    ShardRule *rules[MAX_CHUNKS];
    int64_t part[MAX_CHUNKS][MAX_SET_RANKS];
    const ChunkLoads c = find_chunks(m, axis, loads, first, rules);
    for (int chunk = 0; chunk < c.count; chunk++)
        if (rules[chunk]->parts || c.copies[chunk] < c.ranks)
            return;
    share_chunks(&c, part);
    for (int chunk = 0; chunk < c.count; chunk++)
        rules[chunk]->parts = chunk_text(m, &c, chunk, part[chunk]);
}

/* --- Several repeats ------------------------------------------------------------------------------- */

static void balance_repeats(Module *m, int axis, const RepeatLoads *loads, ShardRule *rule)
{
    const int ranks = (int)m->axis_size[axis];
    int64_t stage[MAX_SET_RANKS], part[MAX_REPEATS][MAX_SET_RANKS];
    if (rule->parts || all_copies(loads) < ranks)
        return;
    share_repeats(&m->arena, loads, ranks, stage);
    cut_repeats(loads->copies, loads->repeats, stage, part);
    for (int i = 0; i < loads->repeats; i++, rule = next_chunk(m, rule->next, axis))
        rule->parts = parts_text(m, part[i], ranks);
}

void balance_stages(Module *m)
{
    if (m->kind_axis >= 0 || !func_with_role(m, STEP)) /* laid out already */
        return;
    for (int axis = 0; axis < m->naxes; axis++) {
        const RepeatLoads loads = weigh_repeats(m, axis);
        if (loads.repeats)
            (loads.repeats > 1 ? balance_repeats : balance_chunks)(m, axis, &loads, next_chunk(m, m->rules, axis));
    }
}
