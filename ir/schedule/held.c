/* held.c -- the memory that a rank holds over the time of a schedule. */
#include "schedule.h"

static void add_level(MemoryCurve *curve, double at, double change)
{
    const double bytes = curve->level[curve->count - 1].bytes + change;
    if (bytes > curve->level[curve->peak].bytes)
        curve->peak = curve->count;
    curve->level[curve->count++] = (MemoryLevel){ at, bytes };
}

MemoryCurve memory_over_time(Arena *arena, const PipelineSchedule *s, const Timeline *t, int rank, double fixed,
                             const double *activation_bytes)
{
    const ActionKind last = s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    MemoryCurve curve = { .count = 1, .level = NEW_ARRAY(arena, MemoryLevel, s->nactions[rank] + 1) };
    curve.level[0] = (MemoryLevel){ 0, fixed };
    for (int i = 0; i < s->nactions[rank]; i++) {
        const Action a = s->action[rank][i];
        if (a.kind == FORWARD_ACTION)
            add_level(&curve, t->start[rank][i], activation_bytes[a.stage]);
        else if (a.kind == last)
            add_level(&curve, t->end[rank][i], -activation_bytes[a.stage]);
    }
    return curve;
}
