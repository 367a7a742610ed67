/* step_time.c -- the time of a step, of all kinds of ranks: see step_time.h. */
#include "clock.h"

#include <math.h>
#include <stdlib.h>

/* --- One kind of rank -------------------------------------------------------------------------------- */

static double time_of(Clock *c, const CostList *list, double times)
{
    run_from(c, 0, list, times);
    return c->now;
}

/* When a rank ends a chunk. */
static double chunk_end_of(const PipelineSchedule *s, const Timeline *t, int rank, int chunk)
{
    double end = 0;
    for (int i = 0; i < s->nactions[rank]; i++)
        if (s->action[rank][i].stage == stage_on_rank(s, rank, chunk))
            end = t->end[rank][i];
    return end;
}

/* The end of a rank's step, after its last action.  The last action of each chunk lets messages start. */
static double end_of(Clock *c, const StepTime *t, int rank)
{
    const StepCost *cost = c->cost;
    double chunk_end[MAX_CHUNKS] = { 0 }, end = 0;
    for (int chunk = 0; cost->schedule && chunk < cost->schedule->chunks; chunk++) {
        chunk_end[chunk] = chunk_end_of(cost->schedule, &t->timeline, rank, chunk);
        end = fmax(end, chunk_end[chunk]);
    }
    c->chunk_end = chunk_end;
    run_from(c, end, &cost->after[rank], 1);
    return c->now;
}

/* --- Pipelines --------------------------------------------------------------------------------------- */

/* The time of the slowest message between stages. */
static double stage_message_time(const Clock *c)
{
    const Module *m = c->cost->m;
    const int64_t stages = m->axis_size[m->kind_axis];
    const bool meet = message_group(c, 1u << m->kind_axis, stages).on_one_machine == stages;
    const Group group = { 2, meet ? 2 : 1 };
    return message_seconds(c->machine, OP_send, c->cost->stage_message, group);
}

static void run_pipeline(Clock *c, StepTime *t)
{
    const PipelineSchedule *s = c->cost->schedule;
    const double **cost[] = { &t->costs.forward, &t->costs.backward, &t->costs.weight };
    for (int kind = 0; kind < N_ACTION_KINDS; kind++) {
        double *seconds = NEW_ARRAY(c->arena, double, stage_count(s));
        t->waits[kind] = NEW_ARRAY(c->arena, double, stage_count(s));
        for (int stage = 0; stage < stage_count(s); stage++) {
            seconds[stage] = time_of(c, &c->cost->action[kind][stage], 1);
            t->waits[kind][stage] = c->waited;
        }
        *cost[kind] = seconds;
    }
    t->costs.message = stage_message_time(c);
    t->costs.lost = 1 - machine_overlap_of_send(c->machine);
    simulate_schedule(c->arena, s, &t->costs, &t->timeline);
}

/* What stages send each other is waited for while a rank idles. */
static void attribute_actions(Clock *c, int rank)
{
    const PipelineSchedule *s = c->cost->schedule;
    for (int kind = 0; kind < N_ACTION_KINDS; kind++)
        for (int chunk = 0; chunk < s->chunks; chunk++)
            time_of(c, &c->cost->action[kind][stage_on_rank(s, rank, chunk)], s->micros);
    for (int i = 0; i < s->nevents[rank]; i++)
        if (s->event[rank][i].is_message && s->event[rank][i].sends) {
            AxesTime *axes = axes_time(c->time, 1u << c->cost->m->kind_axis);
            axes->sent += c->time->costs.message;
            axes->messages++;
        }
}

/* --- The step ---------------------------------------------------------------------------------------- */

static int longer_line_first(const void *a, const void *b)
{
    const LineTime *x = a, *y = b;
    return (x->all < y->all) - (x->all > y->all);
}

static int more_exposed_first(const void *a, const void *b)
{
    const AxesTime *x = a, *y = b;
    return (x->exposed < y->exposed) - (x->exposed > y->exposed);
}

/* What the time of the rank that ends last goes to; the rest of it, it waits for other stages. */
static void attribute(Clock *c, StepTime *t)
{
    c->time = t;
    time_of(c, &c->cost->before[t->kind], 1);
    if (c->cost->schedule)
        attribute_actions(c, t->kind);
    end_of(c, t, t->kind);
    t->idle = t->seconds;
    for (int i = 0; i < N_ITEM_KINDS; i++)
        t->idle -= t->item[i];
    qsort(t->line, (size_t)t->nlines, sizeof *t->line, longer_line_first);
    qsort(t->axes, (size_t)t->naxes, sizeof *t->axes, more_exposed_first);
}

double list_seconds(const StepCost *cost, const CostList *list, const Machine *machine, Arena *arena)
{
    Clock c = new_clock(cost, machine, arena);
    return time_of(&c, list, 1);
}

StepTime step_time(const StepCost *cost, const Machine *machine, Arena *arena)
{
    StepTime t = { 0 };
    Clock c = new_clock(cost, machine, arena);
    if (cost->schedule)
        run_pipeline(&c, &t);
    for (int kind = 0; kind < cost->kinds; kind++)
        t.before = fmax(t.before, time_of(&c, &cost->before[kind], 1));
    for (int kind = 0; kind < cost->kinds; kind++) {
        const double end = t.before + end_of(&c, &t, kind);
        t.kind = end > t.seconds ? kind : t.kind;
        t.seconds = fmax(t.seconds, end);
    }
    t.bubble = cost->schedule ? t.timeline.bubble : 0;
    attribute(&c, &t);
    return t;
}

/* --- When -------------------------------------------------------------------------------------------- */

static Bars bars_of(Clock *c, const CostList *list, double resolution)
{
    Bars bars = new_bars(c->arena, resolution);
    c->bars = &bars;
    time_of(c, list, 1);
    join_bars(&bars);
    return bars;
}

static Bars bars_after(Clock *c, const StepTime *t, int kind, double resolution)
{
    Bars bars = new_bars(c->arena, resolution);
    c->bars = &bars;
    end_of(c, t, kind);
    join_bars(&bars);
    return bars;
}

StepBars step_bars(const StepCost *cost, const Machine *machine, const StepTime *t, double resolution, Arena *arena)
{
    StepBars bars = { .before = NEW_ARRAY(arena, Bars, cost->kinds), .after = NEW_ARRAY(arena, Bars, cost->kinds) };
    Clock c = new_clock(cost, machine, arena);
    for (int kind = 0; kind < cost->kinds; kind++) {
        bars.before[kind] = bars_of(&c, &cost->before[kind], resolution);
        bars.after[kind] = bars_after(&c, t, kind, resolution);
    }
    for (int kind = 0; kind < N_ACTION_KINDS && cost->schedule; kind++) {
        bars.action[kind] = NEW_ARRAY(arena, Bars, stage_count(cost->schedule));
        for (int stage = 0; stage < stage_count(cost->schedule); stage++)
            bars.action[kind][stage] = bars_of(&c, &cost->action[kind][stage], resolution);
    }
    return bars;
}
