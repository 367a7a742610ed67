/* block_bound.c -- bounds from what the parts of a micro-batch take.
 *
 * What is done once a step, and what a rank holds, count as the mean of all stages. */
#include "block.h"

#include <math.h>

typedef double (*Wait)(const Planner *p, const PlanLayout *layout, double forward, double backward);

static double wait_of(const Planner *p, const PlanLayout *layout, const Block *b, Wait wait)
{
    const StageWeights *w = stage_weights(p, layout->recompute);
    double forward = 0, backward = 0;
    for (int i = 0; i < w->repeats; i++) {
        forward += b->copy[FORWARD_ACTION][i] * (double)w->copies[i];
        backward += b->copy[BACKWARD_ACTION][i] * (double)w->copies[i];
    }
    return pipeline_ranks(p, layout) > 1 ? wait(p, layout, forward, backward) : 0;
}

static BlockBound less(double seconds, double memory)
{
    return (BlockBound){ seconds * (1 - STRUCTURE_ERROR), memory };
}

static const Block *block_of(Planner *p, const PlanLayout *layout, bool with_zero, bool is_divided)
{
    return find_block(p, layout, (BlockOf){ with_zero, micro_batches(p, layout) > 1, is_divided });
}

static double least_of_micros(Planner *p, const PlanLayout *layout)
{
    const double stages = (double)pipeline_ranks(p, layout), micros = (double)micro_batches(p, layout);
    const Block *b = block_of(p, layout, false, false);
    return b->refused ? INFINITY : b->whole * micros / stages + wait_of(p, layout, b, least_wait);
}

BlockBound micro_bound(Planner *p, const PlanLayout *layout)
{
    PlanLayout with_zero = *layout;
    with_zero.zero = 1;
    return less(fmin(least_of_micros(p, layout), least_of_micros(p, &with_zero)), 0);
}

BlockBound message_bound(Planner *p, const PlanLayout *layout)
{
    return less(least_seconds(p, layout) + least_waiting(p, layout), 0);
}

/* A ring is another program for each of its sizes.  It computes what attention with gathered keys does, of smaller
 * blocks, and sends keys meanwhile. */
BlockBound ring_bound(Planner *p, const PlanLayout *layout)
{
    PlanLayout without = *layout, with = *layout;
    without.attend = with.attend = GATHER;
    without.zero = 0, with.zero = 1;
    const double stages = (double)pipeline_ranks(p, layout), micros = (double)micro_batches(p, layout);
    if (layout->attend != RING)
        return (BlockBound){ 0, 0 };
    const Block *b = block_of(p, &without, false, false), *c = block_of(p, &with, false, false);
    return b->refused || c->refused ? (BlockBound){ 0, 0 } : less(fmin(b->apart, c->apart) * micros / stages, 0);
}

/* Which dims zero splits depends on all sizes, and with it over which axes messages go and which are joined: their time
 * is less by up to as much. */
static const double JOINED_SHARE = 0.7;

static double once_seconds(const Block *b) { return b->computed + JOINED_SHARE * (b->once - b->computed); }

/* What zero adds to a micro-batch and to a step is the same for all micro-batches and policies: of the smallest one. */
static BlockBound added_by_zero(Planner *p, const PlanLayout *layout)
{
    PlanLayout one = *layout;
    one.microbatch = 1, one.recompute = RECOMPUTE_NONE, one.attend = GATHER, one.overlaps = false;
    const double stages = (double)pipeline_ranks(p, layout), micros = (double)micro_batches(p, layout);
    const bool is_summed = micros > 1;
    const Block *without = find_block(p, &one, (BlockOf){ .is_summed = is_summed }),
                *with = find_block(p, &one, (BlockOf){ true, is_summed, false });
    if (with->refused || without->refused)
        return (BlockBound){ 0, 0 };
    const double in_micros = fmax(0, with->whole - without->whole) * micros * JOINED_SHARE;
    const double seconds = layout->overlaps || !is_summed ? 0 : in_micros + once_seconds(with);
    return (BlockBound){ seconds / stages, with->rest / stages };
}

static BlockBound bound_with(Planner *p, const PlanLayout *layout, Wait wait)
{
    const Block *b = block_of(p, layout, false, false);
    const BlockBound zero = added_by_zero(p, layout);
    const double stages = (double)pipeline_ranks(p, layout), micros = (double)micro_batches(p, layout);
    return b->refused ? (BlockBound){ INFINITY, 0 }
                      : less(b->whole * micros / stages + wait_of(p, layout, b, wait) + zero.seconds,
                             b->saved_whole / stages + zero.memory + (stages == 1 ? b->at_head : 0));
}

BlockBound zero_bound(Planner *p, const PlanLayout *layout) { return bound_with(p, layout, least_wait); }

/* Schedules that divide backward actions, of one repeat: of several it is not known which stage has what is beside
 * them. */
static const Block *divided_block(Planner *p, const PlanLayout *layout, bool with_zero)
{
    const bool may =
        (layout->schedule == ZB_H1 || layout->schedule == ZB_V) && stage_weights(p, layout->recompute)->repeats == 1;
    const Block *block = may ? block_of(p, layout, with_zero, true) : NULL;
    return block && !block->refused ? block : NULL;
}

BlockBound schedule_bound(Planner *p, const PlanLayout *layout, int closeness)
{
    const double stages = (double)pipeline_ranks(p, layout);
    if (closeness == BY_WAITS || (closeness < WITH_ZERO && stages == 1))
        return bound_with(p, layout, wait_in_schedule);
    const Block *b = block_of(p, layout, closeness == WITH_ZERO, false);
    if (b->refused)
        return (BlockBound){ INFINITY, 0 };
    if (stages == 1)
        return less(b->step - (b->once - once_seconds(b)), b->rest + b->saved_whole + b->at_head);
    const BlockBound once =
        closeness == WITH_ZERO
            ? (BlockBound){ (layout->overlaps ? b->computed : once_seconds(b)) / stages, b->rest / stages }
            : added_by_zero(p, layout);
    const Block *divided = closeness >= SIMULATED ? divided_block(p, layout, closeness == WITH_ZERO) : NULL;
    const BlockBound bound = bound_of_pipeline(p, layout, b, closeness >= SIMULATED);
    const double seconds = divided ? bound_of_pipeline(p, layout, divided, true).seconds : bound.seconds;
    return less(seconds + once.seconds, bound.memory + once.memory);
}
