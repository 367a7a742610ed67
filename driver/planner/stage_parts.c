/* stage_parts.c -- the times of the parts of a micro-batch, from the actions of the first stage and of the last. */
#include "block_parts.h"

#include <math.h>

/* The first and the last repeat whose copies a list runs. */
static Range repeats_of(const Parts *parts, Range items)
{
    Range repeats = { 0, 0 };
    for (int i = 0; i < items.count; i++) {
        const int repeat = parts->s->item[items.first + i].repeat;
        if (repeat < 0)
            continue;
        const int first = repeats.count ? repeats.first : repeat, end = first + repeats.count;
        repeats.first = repeat < first ? repeat : first;
        repeats.count = (repeat + 1 > end ? repeat + 1 : end) - repeats.first;
    }
    return repeats;
}

/* What is beside copies: on the first stage before the repeats that it has, on the last stage after them; what stands
 * between two repeats, between them.  Of copies that both stages have, those of the first one count. */
static void read_action(const Parts *parts, ActionKind kind, bool is_last)
{
    const Range items = parts->s->list[2 * kind + is_last], repeats = repeats_of(parts, items);
    const SizedItem *sized = parts->s->item + items.first;
    const CostList *list = sized_list(parts->sizing, items);
    Block *b = parts->block;
    MicroTime *time = &b->time;
    const bool reverse = kind != FORWARD_ACTION;
    const int begin = repeats.first + is_last, end = repeats.first + repeats.count - !is_last;
    int from = 0, place = reverse ? end : begin;
    for (int i = 0; i <= list->count && list->count; i++) {
        const int repeat = i < list->count ? sized[i].repeat : -1;
        if (i < list->count && repeat < 0)
            continue;
        time->beside[kind][place] += seconds_of(parts, &list->item[from], i - from);
        if (repeat >= 0 && (!is_last || time->copy[kind][repeat] <= 0))
            time->copy[kind][repeat] = seconds_of_copy(parts, &list->item[i]);
        if (repeat >= 0)
            b->handed_on = fmax(b->handed_on, sum_of(parts->sizing, sized[i].sum[SUM_CARRIED]));
        const int next = reverse ? repeat : repeat + 1;
        place = repeat < 0 ? place : next < begin ? begin : next > end ? end : next;
        from = i + 1;
    }
}

void read_actions(const Parts *parts)
{
    for (int kind = 0; kind < N_KEPT; kind++)
        for (int repeat = 0; repeat < parts->weights->repeats; repeat++)
            parts->block->divided.kept[kind][repeat] = sum_of(parts->sizing, parts->s->kept[kind][repeat]);
    for (ActionKind kind = 0; kind < N_ACTION_KINDS; kind++)
        for (int is_last = 0; is_last < 2; is_last++)
            read_action(parts, kind, is_last);
}
