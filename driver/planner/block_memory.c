/* block_memory.c -- the least memory that a layout needs, by what its program has at once.
 *
 * The state and what micro-batches keep come from that program, or by arithmetic (memory_bound.c), which knows on which
 * stages the state beside copies is.  At some time an action has values of its own beside all that. */
#include "block.h"

#include <math.h>

/* The state, if it is known, and what micro-batches keep; of what is beside the copies, the mean of all ranks. */
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

/* Between the forward and the backward pass, while all is saved: of ranks that share sequences, some of it has gone by
 * then.  In a pipeline that is on the last stage; what micro-batches keep has its memory all the time. */
static double bytes_at_head(const Planner *p, const PlanLayout *layout, const Block *b)
{
    return attends_apart(p, layout) ? 0 : micro_batches(p, layout) > 1 ? b->at_heads : b->at_head;
}

/* Of a backward action, which follows when a rank has kept most; if it has two parts, the one of weights may. */
static double bytes_in_backward(const Planner *p, const PlanLayout *layout, const Block *b, bool is_any)
{
    const bool may_divide = has_schedule(p, layout) && (is_any || divides_backward(layout));
    const int64_t chunks = is_any ? MAX_CHUNKS : layout->chunks;
    const bool has_several = !has_schedule(p, layout) || p->copies >= 2 * copy_ranks(p, layout) * chunks;
    return may_divide ? 0 : has_several ? b->with_flights : b->scratch;
}

static double memory_of(Planner *p, const PlanLayout *layout, const Block *b, const CopyBytes *bytes, bool is_any)
{
    const double kept = is_any ? least_of_copies(p, layout, bytes) : most_of_copies(p, layout, bytes);
    const double head = bytes_at_head(p, layout, b), backward = kept + bytes_in_backward(p, layout, b, is_any);
    if (!has_schedule(p, layout))
        return fmax(kept + head, backward);
    return is_any ? backward : fmax(bytes_of_last(p, layout, bytes) + head, backward);
}

double block_memory(Planner *p, const PlanLayout *layout, const Block *b, const Block *zero, bool is_any)
{
    const CopyBytes by_block = bytes_by(p, layout, b, zero), by_ends = least_bytes(p, layout);
    const double memory = memory_of(p, layout, b, &by_block, is_any);
    /* of one micro-batch, that has gradients which are not there at the head */
    return micro_batches(p, layout) == 1 ? memory : fmax(memory, memory_of(p, layout, b, &by_ends, is_any));
}
