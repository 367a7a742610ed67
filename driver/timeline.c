/* timeline.c -- the figures in the picture of a schedule: times, shares, memory, and their units. */
#include "timeline.h"

#include <assert.h>
#include <math.h>

static const struct {
    double seconds;
    const char *name;
} units[] = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "us" } };

static int unit_for(double seconds)
{
    int i = 0;
    while (i < 2 && seconds < units[i].seconds)
        i++;
    return i;
}

static void choose_unit(TimelineView *v)
{
    const int i = unit_for(v->to - v->from);
    v->unit = v->p->unit ? 1 : units[i].seconds;
    v->unit_name = v->p->unit ? v->p->unit : units[i].name;
}

const char *duration_text(TimelineView *v, double seconds)
{
    const int i = unit_for(seconds);
    return arena_text(&v->arena, "%.4g %s", seconds / units[i].seconds, units[i].name);
}

static void measure_rank(TimelineView *v, int rank)
{
    const double *start = v->t.start[rank], *end = v->t.end[rank];
    double work = 0;
    for (int i = 0; i < v->s->nactions[rank]; i++) {
        work += end[i] - start[i];
        v->shortest = fmin(v->shortest, end[i] - start[i]);
        v->end = fmax(v->end, end[i]);
    }
    v->idle[rank] = v->t.makespan > 0 ? fmax(0, 1 - work / v->t.makespan) : 0;
    v->memory[rank] = memory_over_time(&v->arena, v->s, &v->t, rank, v->p->fixed_bytes[rank], v->p->activation_bytes);
    if (peak_of(v, rank) > peak_of(v, v->fullest))
        v->fullest = rank;
}

static void measure_pipeline(TimelineView *v)
{
    bool possible = simulate_schedule(&v->arena, v->s, v->p->costs, &v->t);
    assert(possible); /* order_messages() has found an order */
    (void)possible;
    v->memory = NEW_ARRAY(&v->arena, MemoryCurve, v->s->ranks);
    v->idle = NEW_ARRAY(&v->arena, double, v->s->ranks);
    for (int rank = 0; rank < v->s->ranks; rank++)
        measure_rank(v, rank);
}

TimelineView view_timeline(const TimelinePicture *p)
{
    TimelineView v = { .p = p, .s = p->schedule, .shortest = INFINITY };
    if (v.s)
        measure_pipeline(&v);
    v.from = p->step ? -p->step->before : 0;
    v.to = p->step ? v.from + p->step->seconds : v.end;
    choose_unit(&v);
    return v;
}

int row_count(const TimelineView *v) { return v->s ? v->s->ranks : 1; }

const char *row_name(TimelineView *v, int rank) { return v->s ? arena_text(&v->arena, "rank %d", rank) : "each rank"; }

double peak_of(const TimelineView *v, int rank) { return v->memory[rank].level[v->memory[rank].peak].bytes; }

int chunk_of(const TimelineView *v, int stage) { return stage / v->s->ranks; }

double tick_step(double span, int most)
{
    static const double steps[] = { 1, 2, 5 };
    if (span <= 0)
        return 1;
    double power = pow(10, floor(log10(span / most)));
    for (;; power *= 10)
        for (int i = 0; i < 3; i++)
            if (span <= steps[i] * power * most)
                return steps[i] * power;
}

const char *stage_name(TimelineView *v, int stage)
{
    const char *contents = v->p->stage_text ? v->p->stage_text[stage] : NULL;
    return arena_text(&v->arena, "stage %d%s%s", stage, contents ? ": " : "", contents ? contents : "");
}

const char *stages_on_rank(TimelineView *v, int rank)
{
    const char *text = "";
    for (int stage = 0; stage < stage_count(v->s); stage++)
        if (rank_of_stage(v->s, stage) == rank)
            text = arena_text(&v->arena, "%s%s%s", text, *text ? "; " : "", stage_name(v, stage));
    return text;
}

const char *counts_text(TimelineView *v)
{
    if (!v->s)
        return v->p->step->subject;
    const int ranks = v->s->ranks, micros = v->s->micros, stages = stage_count(v->s);
    return arena_text(&v->arena, "%s, %s along %s, %s, %s", v->s->name, counted(&v->arena, ranks, "rank"), v->p->axis,
                      counted(&v->arena, micros, "micro-batch"), counted(&v->arena, stages, "stage"));
}
