/* report_step.c -- the step on a machine as bars: what its picture shows of ranks, links and waits. */
#include "report.h"

#include <inttypes.h>
#include <string.h>

/* In a picture; each rank's lane gets its share, and no more than it can show without zoom, and at the finest one. */
enum { MOST_BARS = 16000, COARSE = 900, FINE = 4000 };

typedef struct {
    const Report *r;
    Arena *arena;
    TimelineStep *step;
    const char **lane;
    double sent[1 << MAX_AXES]; /* seconds that messages over these axes take, on all kinds of ranks */
    int lane_of[1 << MAX_AXES];
    Map texts; /* CostItem -> what a bar of it alone says */
} Drawn;

const char *picture_title(const Report *r)
{
    const Module *m = r->m;
    const char *file = file_name(&r->run->arena, &r->run->source);
    const char *text = arena_text(&r->run->arena, "%s%s", file, m->naxes ? ", mesh" : "");
    for (int i = 0; i < m->naxes; i++)
        text = arena_text(&r->run->arena, "%s%s%s=%" PRId64, text, i ? "," : " ", m->axis[i], m->axis_size[i]);
    return text;
}

/* --- Lanes -------------------------------------------------------------------------------------------- */

_Static_assert((int)WORK_PHASES == (int)N_PHASES, "phases have colours in the style sheet");

/* Computation has a class for each phase, and one for kernels of each that are neither products nor attention. */
static int class_of_item(const CostItem *item) { return (int)item->phase + (item->kind == ITEM_KERNEL ? N_PHASES : 0); }

/* Of a list that each rank of its kind runs so often. */
static void see_bars(Drawn *d, const Bars *bars, bool works, double times)
{
    for (int i = 0; i < bars->count; i++) {
        const Bar *bar = &bars->bar[i];
        const CostItem *item = bar->item;
        if (bar->kind != BAR_COMPUTES)
            d->sent[item->axes] += bar->kind == BAR_UNDER_WAY ? bar->seconds * times : 0;
        else if (works)
            d->step->class_name[class_of_item(item)] = arena_text(d->arena, "%s%s", d->step->phase_name[item->phase],
                                                                  item->kind == ITEM_KERNEL ? ", other kernels" : "");
    }
}

static void see_all_bars(Drawn *d, const StepBars *bars)
{
    const StepCost *cost = d->r->cost;
    for (int kind = 0; kind < cost->kinds; kind++) {
        see_bars(d, &bars->before[kind], true, 1);
        see_bars(d, &bars->after[kind], true, 1);
    }
    for (int kind = 0; kind < N_ACTION_KINDS; kind++)
        for (int i = 0; i < cost->actions; i++)
            see_bars(d, &bars->action[kind][i], false, cost->schedule->micros);
}

/* Those that take little share the last lane. */
static bool is_rare(const Drawn *d, Axes axes)
{
    return d->sent[axes] < 5e-3 * d->r->time->time.seconds * d->r->cost->kinds;
}

static void add_lane(Drawn *d, Axes axes, bool shares)
{
    const char *name = axes_list(d->arena, d->r->m, axes);
    const int lane = shares ? d->step->nlanes - 1 : d->step->nlanes++;
    d->lane[lane] = shares ? arena_text(d->arena, "%s, %s", d->lane[lane], name) : name;
    d->lane_of[axes] = lane;
}

static void add_lanes(Drawn *d)
{
    bool shares = false;
    d->step->lane = d->lane = NEW_ARRAY(d->arena, const char *, 1 << MAX_AXES);
    for (int rare = 0; rare < 2; rare++)
        for (Axes axes = 1; axes < 1 << MAX_AXES; axes++)
            if (d->sent[axes] > 0 && is_rare(d, axes) == rare) {
                add_lane(d, axes, shares);
                shares = rare;
            }
}

/* --- Bars --------------------------------------------------------------------------------------------- */

static const char *item_text(Drawn *d, const CostItem *item)
{
    const Op *op = item->op;
    const char *text = map_get(&d->texts, item);
    if (text)
        return text;
    const char *place = arena_text(d->arena, "%s%s%s", op->path ? op->path : info(op)->name, op->where ? " " : "",
                                   op->where ? op->where : "");
    if (item->kind == ITEM_MESSAGE)
        text = arena_text(d->arena, "%s over %s, %" PRId64 " ranks, %s, for %s", info(op)->name,
                          axes_list(d->arena, d->r->m, item->axes), item->ranks, bytes_text(d->arena, item->volume),
                          place);
    else
        text = arena_text(d->arena, "%s, %s: %s", phase_name[item->phase], item_name[item->kind], place);
    map_put(&d->texts, item, (void *)text);
    return text;
}

static const char *bar_text(Drawn *d, const Bar *bar)
{
    if (bar->count == 1)
        return item_text(d, bar->item);
    if (bar->kind == BAR_COMPUTES)
        return arena_text(d->arena, "%" PRId64 " %s", bar->count,
                          bar->item->kind == ITEM_KERNEL ? "kernels" : "products and attention");
    return arena_text(d->arena, "%" PRId64 " messages over %s", bar->count,
                      axes_list(d->arena, d->r->m, bar->item->axes));
}

static TimelineBar bar_of(Drawn *d, const Bar *bar)
{
    static const TimelineBarKind kind[] = {
        [BAR_COMPUTES] = DRAWN_WORK, [BAR_UNDER_WAY] = DRAWN_MESSAGE, [BAR_WAITS] = DRAWN_WAIT
    };
    return (TimelineBar){ .kind = kind[bar->kind],
                          .lane = bar->kind == BAR_COMPUTES ? class_of_item(bar->item) : d->lane_of[bar->item->axes],
                          .start = bar->start,
                          .end = bar->end,
                          .seconds = bar->seconds,
                          .text = bar_text(d, bar) };
}

/* Of actions only their messages are drawn: their computation is the action. */
static TimelineBars bars_of(Drawn *d, const Bars *bars, bool computes)
{
    TimelineBars drawn = { .bar = NEW_ARRAY(d->arena, TimelineBar, bars->count + 1) };
    for (int i = 0; i < bars->count; i++)
        if (computes || bars->bar[i].kind != BAR_COMPUTES)
            drawn.bar[drawn.count++] = bar_of(d, &bars->bar[i]);
    return drawn;
}

static const TimelineBars *all_bars(Drawn *d, const Bars *bars, int count, bool computes)
{
    TimelineBars *drawn = NEW_ARRAY(d->arena, TimelineBars, count);
    for (int i = 0; i < count; i++)
        drawn[i] = bars_of(d, &bars[i], computes);
    return drawn;
}

static TimelineLevel level_of(Drawn *d, const StepBars *bars)
{
    const StepCost *cost = d->r->cost;
    TimelineLevel level = { .before = all_bars(d, bars->before, cost->kinds, true),
                            .after = all_bars(d, bars->after, cost->kinds, true) };
    for (int kind = 0; cost->schedule && kind < N_ACTION_KINDS; kind++)
        level.action[kind] = all_bars(d, bars->action[kind], cost->actions, false);
    return level;
}

/* --- The step ----------------------------------------------------------------------------------------- */

static StepBars bars_in(const Drawn *d, int most)
{
    const double seconds = d->r->time->time.seconds;
    return step_bars(d->r->cost, d->r->time->machine, &d->r->time->time, seconds / most, d->arena);
}

static void add_levels(Drawn *d)
{
    const int most = MOST_BARS / (d->r->cost->kinds * (d->r->time->time.naxes + 1));
    const StepBars coarse = bars_in(d, COARSE);
    see_all_bars(d, &coarse);
    add_lanes(d);
    d->step->level[d->step->nlevels++] = level_of(d, &coarse);
    if (most > COARSE) {
        const StepBars fine = bars_in(d, most < FINE ? most : FINE);
        d->step->level[d->step->nlevels++] = level_of(d, &fine);
    }
}

const TimelineStep *timeline_step(const Report *r)
{
    const StepTime *t = &r->time->time;
    Arena *arena = &r->run->arena;
    TimelineStep *step = NEW(arena, TimelineStep);
    Drawn d = { .r = r, .arena = arena, .step = step, .texts.arena = arena };
    *step = (TimelineStep){ .rate = rate_text(r), .before = t->before, .seconds = t->seconds };
    step->subject =
        arena_text(arena, "a step of %s on %s",
                   r->ranks > 1 ? arena_text(arena, "each of %" PRId64 " ranks", r->ranks) : "one rank", r->time->name);
    for (int phase = 0; phase < N_PHASES; phase++)
        step->phase_name[phase] =
            arena_text(arena, "%s%s", phase_name[phase], r->cost->schedule ? ", once a step" : "");
    add_levels(&d);
    return step;
}

/* Of one micro-batch, the stages of a pipeline hold all of their memory all the time. */
const TimelinePicture *step_picture(const Report *r)
{
    const StepCost *cost = r->cost;
    TimelinePicture *picture = NEW(&r->run->arena, TimelinePicture);
    double *fixed = NEW_ARRAY(&r->run->arena, double, cost->kinds);
    for (int kind = 0; kind < cost->kinds; kind++)
        fixed[kind] = (double)r->of_kind[kind].arena;
    *picture = (TimelinePicture){ .schedule = cost->schedule,
                                  .costs = &r->time->time.costs,
                                  .step = timeline_step(r),
                                  .title = picture_title(r),
                                  .axis = cost->schedule ? r->m->axis[r->m->kind_axis] : NULL,
                                  .published_bubble = -1,
                                  .fixed_bytes = fixed,
                                  .activation_bytes = NEW_ARRAY(&r->run->arena, double, cost->actions),
                                  .capacity_bytes = memory_room(r) };
    return picture;
}
