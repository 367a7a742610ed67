/* refine.c -- what the listed layouts gain from messages in pieces and micro-batches abreast, with --refine.
 *
 * Each number of pieces, and of micro-batches abreast, would be a space of its own, whose programs are others.  So
 * these are searched last, of the few layouts that are listed: each is compiled with all of them, and the fastest that
 * fits takes its place.  What is proved is proved without them.
 */
#include "planner.h"

static const int numbers[] = { 1, 2, 4 };

enum { NUMBERS = sizeof numbers / sizeof *numbers, MOST_WAYS = NUMBERS * NUMBERS };

/* Others than its own; what --keep or the model asks for stays. */
static int ways_of(const Planner *p, const PlanLayout *layout, PlanLayout way[MOST_WAYS])
{
    int count = 0;
    for (int i = 0; i < MOST_WAYS; i++) {
        PlanLayout own = *layout;
        own.pieces = numbers[i / NUMBERS], own.abreast = numbers[i % NUMBERS];
        const bool is_cut = own.pieces == layout->pieces || (p->kept.pieces == 1 && can_cut(p, layout, own.pieces));
        const bool is_abreast = own.abreast == layout->abreast || (p->kept.abreast == 1 && may_be_abreast(p, layout) &&
                                                                   micro_batches(p, layout) % own.abreast == 0);
        if (is_cut && is_abreast && (own.pieces != layout->pieces || own.abreast != layout->abreast))
            way[count++] = own;
    }
    return count;
}

/* The fastest of a layout and its ways. */
static int refine(Planner *p, PlanResult *best)
{
    PlanLayout way[MOST_WAYS];
    double enough[MOST_WAYS];
    const int count = ways_of(p, &best->layout, way);
    PlanResult *result = NEW_ARRAY(p->arena, PlanResult, MOST_WAYS);
    for (int i = 0; i < count; i++)
        enough[i] = best->seconds;
    for (int i = 0; i < count; i += COMPILED_AHEAD)
        compiled_results(p, &way[i], &enough[i], count - i < COMPILED_AHEAD ? count - i : COMPILED_AHEAD, &result[i]);
    for (int i = 0; i < count; i++)
        if (!result[i].refused && !result[i].is_slower && result[i].seconds < best->seconds &&
            (double)(result[i].arena + result[i].beside) <= p->memory)
            *best = result[i];
    return count;
}

void refine_answer(Planner *p, Answer *answer)
{
    for (int i = 0; i < answer->count; i++)
        answer->refined += refine(p, &answer->best[i]);
    sort_answer(answer);
}
