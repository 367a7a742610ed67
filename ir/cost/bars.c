/* bars.c -- records what a rank does when: see bars.h. */
#include "bars.h"

/* Products and attention, other kernels; messages of each list of axes, waits for them. */
enum { OWN = 2, LANES = OWN + 2 * (1 << MAX_AXES) };

static int lane_of(const Bar *bar)
{
    if (bar->kind == BAR_COMPUTES)
        return bar->item->kind == ITEM_KERNEL;
    return OWN + 2 * (int)bar->item->axes + (bar->kind == BAR_WAITS);
}

Bars new_bars(Arena *arena, double resolution)
{
    return (Bars){ .resolution = resolution, .last = NEW_ARRAY(arena, int, LANES), .arena = arena };
}

static void join(Bar *bar, const Bar *next)
{
    bar->end = next->end > bar->end ? next->end : bar->end;
    bar->item = next->longest > bar->longest ? next->item : bar->item;
    bar->longest = next->longest > bar->longest ? next->longest : bar->longest;
    bar->seconds += next->seconds;
    bar->count += next->count;
}

static void push_bar(Bars *bars, Bar bar)
{
    int *last = &bars->last[lane_of(&bar)];
    Bar *before = *last ? &bars->bar[*last - 1] : NULL;
    if (before && *last > bars->turn && bar.end - before->start <= bars->resolution) {
        join(before, &bar);
        return;
    }
    if (before && before->count > 1 && bar.start - before->end <= bars->resolution)
        before->end = bar.start;
    if (bars->count == bars->room) {
        Bar *grown = NEW_ARRAY(bars->arena, Bar, bars->room = bars->room ? 2 * bars->room : 64);
        for (int i = 0; i < bars->count; i++)
            grown[i] = bars->bar[i];
        bars->bar = grown;
    }
    bars->bar[bars->count] = bar;
    *last = ++bars->count;
}

void add_bar(Bars *bars, BarKind kind, const CostItem *item, double start, double end)
{
    const Bar bar = { kind, item, start, end, end - start, end - start, 1 };
    if (end > start)
        push_bar(bars, bar);
}

int begin_turn(Bars *bars) { return bars->turn = bars->count; }

void repeat_turn(Bars *bars, int begin, int64_t times, double seconds)
{
    const int count = bars->count - begin;
    Bar *turn = NEW_ARRAY(bars->arena, Bar, count + 1);
    for (int i = 0; i < count; i++)
        turn[i] = bars->bar[begin + i];
    for (int64_t turns = 1; turns <= times; turns++)
        for (int i = 0; i < count; i++) {
            Bar bar = turn[i];
            bar.start += (double)turns * seconds;
            bar.end += (double)turns * seconds;
            push_bar(bars, bar);
        }
}

void join_bars(Bars *bars)
{
    Bars joined = new_bars(bars->arena, bars->resolution);
    for (int i = 0; i < bars->count; i++)
        push_bar(&joined, bars->bar[i]);
    *bars = joined;
}
