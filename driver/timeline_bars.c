/* timeline_bars.c -- in the drawing: what ranks compute outside of actions of a pipeline, and lanes below each rank
 * with its messages, while they are under way, and while the rank waits for them. */
#include "timeline.h"

#include <math.h>

static const TimelineBars *bars_of_action(const TimelineLevel *level, Action a)
{
    return level->action[a.kind] ? &level->action[a.kind][a.stage] : NULL;
}

double action_waits(const TimelineView *v, Action a)
{
    const TimelineBars *bars = v->p->step ? bars_of_action(&v->p->step->level[0], a) : NULL;
    double seconds = 0;
    for (int i = 0; bars && i < bars->count; i++)
        seconds += bars->bar[i].kind == DRAWN_WAIT ? bars->bar[i].seconds : 0;
    return seconds;
}

double busy_until(const TimelineView *v, int rank, bool after)
{
    const TimelineLevel *level = &v->p->step->level[0];
    const TimelineBars *bars = after ? &level->after[rank] : &level->before[rank];
    double end = after ? v->t.end[rank][v->s->nactions[rank] - 1] : v->from;
    for (int i = 0; i < bars->count; i++)
        if (bars->bar[i].kind != DRAWN_MESSAGE)
            end = fmax(end, bars->bar[i].end + (after ? 0 : v->from));
    return end;
}

/* As high as its seconds are a share of it: so areas are times, also where many are one bar.  Other kernels hang from
 * the top of the row, all else stands on the ground. */
static void draw_bar(const TimelineDrawing *d, int rank, const TimelineBar *bar, double from)
{
    static const char *const class[] = { "c", "u", "w" };
    TimelineView *v = d->v;
    const TimelineLayout *l = &d->layout;
    const bool works = bar->kind == DRAWN_WORK, hangs = works && bar->lane >= WORK_PHASES;
    const double x = percent_at(v, from + bar->start), width = percent_at(v, from + bar->end) - x;
    const double top = works ? row_at(l, rank) : lane_at(l, rank, bar->lane), room = works ? l->row : l->lane - 1;
    const double height = fmax(1, room * fmin(1, bar->seconds / (bar->end - bar->start)));
    fprintf(d->out, "<rect class=\"%s%d\" x=\"%.6g%%\" y=\"%.5g\" width=\"%.5g%%\" height=\"%.4g\"", class[bar->kind],
            bar -> lane, x, hangs ? top : top + room - height, width, height);
    if (bar->kind == DRAWN_WAIT)
        fprintf(d->out, " data-s=\"%.6g\"", bar->seconds);
    fprintf(d->out, "><title>%s%s; %s from %.5g %s on</title></rect>\n", bar->kind == DRAWN_WAIT ? "waits for " : "",
            bar->text, duration_text(v, bar->seconds), in_units(v, from + bar->start), v->unit_name);
}

/* Waits lie on what they wait for. */
static void draw_bars(const TimelineDrawing *d, int rank, const TimelineBars *bars, double from)
{
    for (TimelineBarKind kind = DRAWN_WORK; kind <= DRAWN_WAIT; kind++)
        for (int i = 0; i < bars->count; i++)
            if (bars->bar[i].kind == kind)
                draw_bar(d, rank, &bars->bar[i], from);
}

void draw_action_bars(const TimelineDrawing *d, int rank, int i)
{
    const TimelineStep *step = d->v->p->step;
    const TimelineBars *bars = step ? bars_of_action(&step->level[0], d->v->s->action[rank][i]) : NULL;
    if (!bars || !bars->count)
        return;
    fprintf(d->out, "<g class=\"bars\">\n");
    draw_bars(d, rank, bars, d->v->t.start[rank][i]);
    fprintf(d->out, "</g>\n");
}

void draw_bars_around(const TimelineDrawing *d, int rank)
{
    const TimelineLevel *level = &d->v->p->step->level[0];
    fprintf(d->out, "<g class=\"bars\" data-rank=\"%d\">\n", rank);
    draw_bars(d, rank, &level->before[rank], d->v->from);
    draw_bars(d, rank, &level->after[rank], 0);
    fprintf(d->out, "</g>\n");
}
