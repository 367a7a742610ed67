/* block_memory.c -- the least memory that a layout needs, by what its program has at once.
 *
 * The state and what micro-batches keep come from that program, or by arithmetic (memory_bound.c), which knows on which
 * stages the state beside copies is.  At some time an action has values of its own beside all that. */
#include "block.h"

#include <math.h>

/* The state, unless `zero` is NULL, and what micro-batches keep for backward actions.  What belongs to no copy of a
 * repeat counts as if all ranks had an equal share: the program does not say which rank has it. */
static CopyBytes bytes_by(const Planner *p, const PlanLayout *layout, const Block *b, const Block *zero)
{
    const RepeatLoads *w = loads_of(p, layout->recompute);
    const double kept = p->away.away & AWAY_ACTIVATIONS ? 0 : 1;
    double beside = kept * b->saved_whole + (zero ? zero->rest : 0);
    CopyBytes bytes = { 0 };
    for (int i = 0; i < w->repeats; i++) {
        bytes.kept[FOR_BACKWARD][i] = kept * b->saved[i];
        bytes.held[i] = zero ? zero->held[i] : 0;
        beside -= (bytes.held[i] + bytes.kept[FOR_BACKWARD][i]) * (double)w->copies[i];
    }
    bytes.others = p->beside + beside / (double)copy_ranks(p, layout);
    return bytes;
}

/* Between the forward and the backward pass, while all is saved.  In a pipeline that is on the last stage; what
 * micro-batches keep has its memory all the time. */
static double bytes_at_head(const Planner *p, const PlanLayout *layout, const Block *b)
{
    return micro_batches(p, layout) > 1 ? b->at_heads : b->at_head;
}

/* Of a backward action, which follows when a rank has kept most; if it has two parts, the one of weights may.  On a
 * rank with all copies, it begins with those of the last repeat. */
static double bytes_in_backward(const Planner *p, const PlanLayout *layout, const Block *b, const Block *zero,
                                bool is_any)
{
    const int64_t ranks = copy_ranks(p, layout), chunks = is_any ? MAX_CHUNKS : layout->chunks;
    const bool is_one = ranks == 1, may_divide = !is_one && (is_any || divides_backward(layout));
    const bool has_several = is_one || p->copies >= 2 * ranks * chunks; /* of the copies, on each stage */
    const Scratch *own = is_one ? &b->first : &b->least;
    const double of_zero = !zero ? 0 : is_one ? zero->first.of_weights : zero->least.of_weights;
    return may_divide ? 0 : fmax(has_several ? own->with_flights : own->own, of_zero);
}

static double memory_of(Planner *p, const PlanLayout *layout, const Block *b, const Block *zero, const CopyBytes *bytes,
                        bool is_any)
{
    const double kept = is_any ? least_of_copies(p, layout, bytes) : most_of_copies(p, layout, bytes);
    const double head = bytes_at_head(p, layout, b), backward = kept + bytes_in_backward(p, layout, b, zero, is_any);
    if (!has_schedule(p, layout))
        return fmax(kept + head, backward);
    return is_any ? backward : fmax(bytes_of_last(p, layout, bytes) + head, backward);
}

double block_memory(Planner *p, const PlanLayout *layout, const Block *b, const Block *zero, bool is_any)
{
    const CopyBytes by_block = bytes_by(p, layout, b, zero), by_ends = least_bytes(p, layout);
    const double memory = memory_of(p, layout, b, zero, &by_block, is_any);
    /* of one micro-batch, that has gradients which are not there at the head */
    return micro_batches(p, layout) == 1 ? memory : fmax(memory, memory_of(p, layout, b, zero, &by_ends, is_any));
}
