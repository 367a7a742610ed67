/* block.c -- finds what the parts of a micro-batch take: see block.h. */
#include "block.h"

#include "sized.h"

#include <math.h>
#include <string.h>

/* --- The layout that is compiled --------------------------------------------------------------------------- */

/* Is an axis outside of it one that splits a micro-batch, so that its ranks are as far apart as this one says? */
static bool is_inside_another(const Planner *p, const PlanLayout *layout, int axis)
{
    for (int i = 0; i < axis; i++)
        if (layout->size[i] > 1 && splits_micro_batch(&p->axis[i]))
            return true;
    return false;
}

/* An axis such as cp splits the sequences of a micro-batch, so each of its ranks has a part of every gradient.  With
 * zero these parts are summed once a step.  Without zero they are summed in every micro-batch, which takes longer; but
 * of experts all ranks gather the operands and compute the whole gradient, which may not. */
bool sums_late(const Planner *p, const PlanLayout *layout)
{
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].is_zero && !p->axis[i].is_batch && layout->size[i] > 1)
            return layout->zero > 0 || !p->has_experts;
    return false;
}

/* Has the mesh axes outside of it, whose ranks are farther apart by its ranks? */
static bool is_between(const Planner *p, const PlanLayout *layout, BlockOf of, int axis)
{
    bool is_inside = is_inside_another(p, layout, axis);
    for (int i = 0; i < axis && of.with_zero; i++)
        is_inside |= layout->size[i] > 1;
    return is_inside;
}

static PlanLayout block_layout(const Planner *p, const PlanLayout *layout, BlockOf of)
{
    PlanLayout block = *layout;
    if (!of.in_actions || !divides_backward(layout))
        block.schedule = ONE_F_ONE_B, block.chunks = 1;
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].splits_copies)
            block.size[i] = is_between(p, layout, of, i) ? block.size[i] : of.in_actions ? 2 : 1;
        else if (!of.with_zero && p->axis[i].is_batch && block.size[i] > 1 && !is_inside_another(p, layout, i))
            block.size[i] = of.is_rough ? 1 : 2; /* two are like any number */
    if (!of.with_zero)
        block.zero = sums_late(p, &block), block.overlaps = false;
    return block;
}

/* Without a pipeline, or with a short one, and with as many turns of a ring. */
PlanLayout program_layout(const Planner *p, const PlanLayout *layout, BlockOf of)
{
    PlanLayout program = block_layout(p, layout, of);
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].splits_copies)
            program.size[i] = of.in_actions ? 2 : 1;
        else if (p->axis[i].attends && of.turns)
            program.size[i] = of.turns;
        else if (of.is_rough && p->axis[i].is_batch)
            program.size[i] = 1;
    if (of.is_rough)
        program.microbatch = 2;
    return program;
}

/* --- Blocks ------------------------------------------------------------------------------------------- */

static unsigned hash_of(const PlanLayout *l)
{
    uint64_t hash = (uint64_t)l->microbatch * 31 + l->attend * 7 + l->recompute * 5 + (uint64_t)(l->zero + 1) * 3 +
                    l->overlaps + (uint64_t)l->pieces * 64 + (uint64_t)lanes_of(l) * 512;
    for (int i = 0; i < MAX_AXES; i++)
        hash = (hash ^ (uint64_t)l->size[i]) * 0x9E3779B97F4A7C15u;
    return (unsigned)(hash >> 40) % BLOCK_LISTS;
}

static const Block *add_block(Planner *p, const Block *block)
{
    Block *added = NEW(p->arena, Block);
    Block **first = &p->blocks->first[hash_of(&block->like)];
    *added = *block;
    added->next = *first;
    return *first = added;
}

static bool is_alike(const PlanLayout *a, const PlanLayout *b)
{
    return memcmp(a->size, b->size, sizeof a->size) == 0 && a->microbatch == b->microbatch && a->attend == b->attend &&
           a->recompute == b->recompute && a->zero == b->zero && a->overlaps == b->overlaps && a->pieces == b->pieces &&
           a->schedule == b->schedule && lanes_of(a) == lanes_of(b);
}

static const Block *kept_block(const Planner *p, const PlanLayout *like, BlockOf of)
{
    for (const Block *block = p->blocks->first[hash_of(like)]; block; block = block->next)
        if (block->of.with_zero == of.with_zero && block->of.is_summed == of.is_summed &&
            block->of.in_actions == of.in_actions && block->of.turns == of.turns && block->of.is_rough == of.is_rough &&
            block->of.is_silent == of.is_silent && is_alike(&block->like, like))
            return block;
    return NULL;
}

bool is_known(const Planner *p, const PlanLayout *layout, BlockOf of)
{
    const PlanLayout like = block_layout(p, layout, of);
    return kept_block(p, &like, of);
}

/* --- Rings ----------------------------------------------------------------------------------------------- */

/* A ring is read from two with few turns whose blocks have its sizes: it takes longer than the longer one by what that
 * takes longer than the shorter one, turn by turn. */

/* Has the ring of the layout more turns than these?  With windows, turns differ; with zero, what the messages of zero
 * hide behind has as many turns; and those of a micro-batch behind others. */
static bool has_more_turns(const Planner *p, const PlanLayout *layout, BlockOf of)
{
    bool has = false;
    const bool may = layout->attend == RING && !of.with_zero && !p->has_windows && lanes_of(layout) == 1;
    for (int i = 0; i < p->naxes && !of.turns && may; i++) {
        const int64_t size = layout->size[i];
        has |= p->axis[i].attends && size > MORE_TURNS && deals_blocks(p, i, size) && deals_blocks(p, i, MORE_TURNS);
    }
    return has;
}

static BlockOf with_turns(BlockOf of, int turns)
{
    of.turns = turns;
    return of;
}

int programs_of(const Planner *p, const BlockAsk *ask, BlockAsk program[2])
{
    const int count = has_more_turns(p, &ask->layout, ask->of) ? 2 : 1;
    for (int i = 0; i < count; i++) {
        program[i].of = count == 2 ? with_turns(ask->of, i ? MORE_TURNS : FEW_TURNS) : ask->of;
        program[i].layout = program_layout(p, &ask->layout, program[i].of);
    }
    return count;
}

/* So much of what a turn takes longer counts: messages hide a little better in some rings than in short ones
 * (found: 2.5 %). */
#define TURN_SHARE 0.97

static double with_more(double few, double more, double turns)
{
    return more + fmax(0, more - few) * TURN_SHARE * (turns - MORE_TURNS) / (MORE_TURNS - FEW_TURNS);
}

static void add_turns_of_micro(MicroTime *time, const MicroTime *few, double turns)
{
    time->whole = with_more(few->whole, time->whole, turns);
    for (int i = 0; i < MAX_REPEATS; i++)
        time->back[i] = with_more(few->back[i], time->back[i], turns);
    for (int kind = 0; kind < N_ACTION_KINDS; kind++)
        for (int i = 0; i <= MAX_REPEATS; i++) {
            time->beside[kind][i] = with_more(few->beside[kind][i], time->beside[kind][i], turns);
            if (i < MAX_REPEATS)
                time->copy[kind][i] = with_more(few->copy[kind][i], time->copy[kind][i], turns);
        }
}

/* false: it is not known what a turn takes. */
static bool add_turns(Planner *p, const PlanLayout *layout, BlockOf of, Block *block)
{
    BlockAsk program[2];
    for (int i = programs_of(p, &(BlockAsk){ *layout, of }, program) - 1; i >= 0; i--)
        if (find_sized(p, &program[i].layout, program[i].of)->is_irregular)
            return false;
    const Block *few = find_block(p, layout, with_turns(of, FEW_TURNS));
    const Block *more = find_block(p, layout, with_turns(of, MORE_TURNS));
    if (few->refused || more->refused)
        return false;
    double turns = 1;
    for (int i = 0; i < p->naxes; i++)
        turns *= p->axis[i].attends ? (double)layout->size[i] : 1;
    *block = *more;
    block->of = of;
    add_turns_of_micro(&block->time, &few->time, turns);
    block->apart = with_more(few->apart, more->apart, turns);
    return true;
}

bool is_regular(Planner *p, const PlanLayout *layout, BlockOf of)
{
    const PlanLayout program = program_layout(p, layout, of);
    return !find_sized(p, &program, of)->is_irregular;
}

const Block *find_block(Planner *p, const PlanLayout *layout, BlockOf of)
{
    const PlanLayout like = block_layout(p, layout, of);
    const Block *known = kept_block(p, &like, of);
    if (known)
        return known;
    Block block = { .like = like, .of = of, .turns = turns_of(p, &like) };
    if (!has_more_turns(p, &like, of) || !add_turns(p, &like, of, &block)) {
        const PlanLayout program = program_layout(p, &like, of);
        with_sized(p, &program, of, read_block, &(BlockReading){ p, &block });
    }
    return add_block(p, &block);
}
