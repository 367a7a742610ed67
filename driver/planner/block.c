/* block.c -- finds what the parts of a micro-batch take: see block.h. */
#include "block.h"

#include "sized.h"

#include <string.h>

/* --- The layout that is compiled --------------------------------------------------------------------------- */

/* Is an axis outside of it one that splits a micro-batch, so that its ranks are as far apart as this one says? */
static bool is_inside_another(const Planner *p, const PlanLayout *layout, int axis)
{
    for (int i = 0; i < axis; i++)
        if (layout->size[i] > 1 && !p->axis[i].is_pipeline && !p->axis[i].is_batch)
            return true;
    return false;
}

/* An axis such as cp splits the sequences of a micro-batch, so each of its ranks has a part of every gradient.  With
 * zero these parts are summed once a step.  Without zero they are summed in every micro-batch, which takes longer; but
 * of experts all ranks gather the operands and compute the whole gradient, which may not. */
static bool sums_late(const Planner *p, const PlanLayout *layout)
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
    if (!of.is_divided)
        block.schedule = ONE_F_ONE_B, block.chunks = 1;
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].is_pipeline)
            block.size[i] = is_between(p, layout, of, i) ? block.size[i] : of.is_divided ? 2 : 1;
        else if (!of.with_zero && p->axis[i].is_batch && block.size[i] > 2 && !is_inside_another(p, layout, i))
            block.size[i] = 2;
    if (!of.with_zero)
        block.zero = sums_late(p, &block), block.overlaps = false;
    return block;
}

/* Without a pipeline, or with a short one. */
PlanLayout program_layout(const Planner *p, const PlanLayout *layout, BlockOf of)
{
    PlanLayout program = block_layout(p, layout, of);
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].is_pipeline)
            program.size[i] = of.is_divided ? 2 : 1;
    return program;
}

/* --- Blocks ------------------------------------------------------------------------------------------- */

static unsigned hash_of(const PlanLayout *l)
{
    uint64_t hash =
        (uint64_t)l->microbatch * 31 + l->attend * 7 + l->recompute * 5 + (uint64_t)(l->zero + 1) * 3 + l->overlaps;
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
           a->recompute == b->recompute && a->zero == b->zero && a->overlaps == b->overlaps &&
           a->schedule == b->schedule;
}

static const Block *kept_block(const Planner *p, const PlanLayout *like, BlockOf of)
{
    for (const Block *block = p->blocks->first[hash_of(like)]; block; block = block->next)
        if (block->of.with_zero == of.with_zero && block->of.is_summed == of.is_summed &&
            block->of.is_divided == of.is_divided && is_alike(&block->like, like))
            return block;
    return NULL;
}

bool is_known(const Planner *p, const PlanLayout *layout, BlockOf of)
{
    const PlanLayout like = block_layout(p, layout, of);
    return kept_block(p, &like, of);
}

const Block *find_block(Planner *p, const PlanLayout *layout, BlockOf of)
{
    const PlanLayout like = block_layout(p, layout, of);
    const Block *known = kept_block(p, &like, of);
    if (known)
        return known;
    Block block = { .like = like, .of = of, .micros = micro_batches(p, &like) };
    const PlanLayout program = program_layout(p, &like, of);
    with_sized(p, &program, of, read_block, &(BlockReading){ p, &block });
    return add_block(p, &block);
}
