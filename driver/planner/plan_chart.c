/* plan_chart.c -- the picture of the page: memory of a rank against the time of a step, a point for each layout that
 * was compiled.  Those that are listed are larger, with their names; those that do not fit lie above the line of the
 * memory.
 */
#include "planner.h"

#include "plot/plot.h"
#include "timeline.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 1100, /* pixels; the page scales them */
    HEIGHT = 520,
    LEFT = 62,
    RIGHT = 22,
    TOP = 40,
    BOTTOM = 48,
    TICKS_X = 10,
    TICKS_Y = 8,
    MOST_TICKS = 32
};

/* The place of a name, or of a point that names keep off. */
typedef struct {
    double left, right, top, bottom;
} Box;

typedef struct {
    const Planner *p;
    const Answer *answer;
    FILE *out;
    PlotScale x, y;
    int nboxes, ntaken;
    Box *box; /* the first `ntaken`: names, and points that have one; then all other points */
} Chart;

static double gigabytes(const PlanResult *r) { return (double)(r->arena + r->beside) / 1e9; }
static bool fits(const Chart *c, const PlanResult *r) { return (double)(r->arena + r->beside) <= c->p->memory; }

static double x_of(const Chart *c, double seconds)
{
    return LEFT + plot_place(&c->x, seconds) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const Chart *c, double amount)
{
    return HEIGHT - BOTTOM - plot_place(&c->y, amount) * (HEIGHT - BOTTOM - TOP);
}

/* --- Scales -------------------------------------------------------------------------------------------- */

static void widen(PlotScale *scale, double number)
{
    scale->low = fmin(scale->low, number);
    scale->high = fmax(scale->high, number);
}

/* With room at both ends, so that no point lies on an edge. */
static PlotScale with_room(PlotScale scale)
{
    enum { WIDE = 4 /* times: more is drawn on a logarithmic axis */, ROOM = 20 };
    if (scale.high > WIDE * scale.low) {
        const double ratio = pow(scale.high / scale.low, 1.0 / ROOM);
        return (PlotScale){ true, scale.low / ratio, scale.high * ratio };
    }
    const double room = fmax(scale.high - scale.low, 0.1 * scale.high) / ROOM;
    return (PlotScale){ false, scale.low - room, scale.high + room };
}

/* The line of the memory is in the picture if it leaves half of that to the points. */
static void scale_axes(Chart *c)
{
    c->x = c->y = (PlotScale){ false, INFINITY, 0 };
    for (int i = 0; i < c->answer->ncompiled; i++) {
        widen(&c->x, c->answer->compiled[i]->seconds);
        widen(&c->y, gigabytes(c->answer->compiled[i]));
    }
    if (c->p->memory / 1e9 < 2 * c->y.high)
        widen(&c->y, c->p->memory / 1e9);
    c->x = with_room(c->x);
    c->y = with_room(c->y);
}

/* --- Axes ---------------------------------------------------------------------------------------------- */

static void write_ticks(const Chart *c)
{
    double ticks[MOST_TICKS];
    int count = ticks_of(&c->y, TICKS_Y, ticks, MOST_TICKS);
    for (int i = 0; i < count; i++)
        fprintf(c->out,
                "<path class=\"grid\" d=\"M%d,%.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                LEFT, y_of(c, ticks[i]), WIDTH - RIGHT, LEFT - 8, y_of(c, ticks[i]) + 4,
                tick_text(c->p->arena, ticks[i]));
    count = ticks_of(&c->x, TICKS_X, ticks, MOST_TICKS);
    for (int i = 0; i < count; i++)
        fprintf(c->out,
                "<path class=\"axis\" d=\"M%.1f,%dv5\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%s</text>\n",
                x_of(c, ticks[i]), HEIGHT - BOTTOM, x_of(c, ticks[i]), HEIGHT - BOTTOM + 19,
                tick_text(c->p->arena, ticks[i]));
    fprintf(c->out, "<path class=\"axis\" d=\"M%d,%dH%d\"/>\n", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT);
    fprintf(c->out, "<text class=\"unit\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">seconds of a step%s</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, c->x.is_log ? ", logarithmic" : "");
    fprintf(c->out, "<text class=\"unit\" x=\"%d\" y=\"18\">GB of a rank%s</text>\n", LEFT - 40,
            c->y.is_log ? ", logarithmic" : "");
}

static void write_memory(const Chart *c)
{
    const char *name = arena_text(c->p->arena, "memory of a rank: %s", bytes_text(c->p->arena, c->p->memory));
    const double at = y_of(c, c->p->memory / 1e9);
    const bool is_drawn = at >= TOP;
    if (is_drawn)
        fprintf(c->out,
                "<rect class=\"beyond\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%.1f\"/>"
                "<path class=\"memory\" d=\"M%d,%.1fH%d\"/>",
                LEFT, TOP, WIDTH - LEFT - RIGHT, at - TOP, LEFT, at, WIDTH - RIGHT);
    fprintf(c->out, "<text class=\"limit\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s%s</text>\n", WIDTH - RIGHT,
            is_drawn ? fmax(at - 6, TOP - 6) : 18, name, is_drawn ? "" : ", above the picture");
}

/* --- Points -------------------------------------------------------------------------------------------- */

static bool is_same(const Planner *p, const PlanLayout *a, const PlanLayout *b)
{
    return memcmp(a->size, b->size, (size_t)p->naxes * sizeof *a->size) == 0 && a->microbatch == b->microbatch &&
           a->attend == b->attend && a->recompute == b->recompute && a->zero == b->zero && a->overlaps == b->overlaps &&
           a->schedule == b->schedule && a->chunks == b->chunks && a->pieces == b->pieces && a->abreast == b->abreast;
}

/* Its place in the answer, from 1 on; 0: it is not listed. */
static int place_of(const Chart *c, const PlanResult *r)
{
    for (int i = 0; i < c->answer->count; i++)
        if (is_same(c->p, &c->answer->best[i].layout, &r->layout))
            return i + 1;
    return 0;
}

/* What a reader sees when pointing at it: the layout, what it takes, and what for. */
static const char *reasons(const Chart *c, const PlanResult *r)
{
    Arena *a = c->p->arena;
    const PlanCells cells = plan_cells(c->p, r);
    const char *text = cells.text[COLUMN_LAYOUT], *limits = limits_text(c->p, r);
    for (int k = 1; k < PLAN_COLUMNS; k++)
        if (strcmp(cells.text[k], "-") != 0)
            text = arena_text(a, "%s%s%s %s", text, k == COLUMN_SECONDS ? "\n" : ", ", plan_title[k], cells.text[k]);
    if (!fits(c, r))
        text = arena_text(a, "%s\ndoes not fit", text);
    text = arena_text(a, "%s\n%s%s", text, *limits ? "limited by " : "no message is waited for", limits);
    for (int part = 0; part < PLAN_PARTS; part++)
        if (is_part(r, part))
            text = arena_text(a, "%s\n%s: %.4g s, %.1f %%", text, plan_part[part], part_seconds(r, part),
                              100 * part_seconds(r, part) / r->seconds);
    return text;
}

static void write_point(const Chart *c, const PlanResult *r)
{
    const int place = place_of(c, r);
    const double x = x_of(c, r->seconds), y = y_of(c, gigabytes(r));
    fprintf(c->out, "<g class=\"point%s\"", place ? " listed" : fits(c, r) ? "" : " over");
    if (place)
        fprintf(c->out, " data-place=\"%d\"", place);
    fprintf(c->out, "><title>");
    write_lines(reasons(c, r), c->out);
    if (fits(c, r))
        fprintf(c->out, "</title><circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/></g>\n", x, y, place ? 6 : 4);
    else
        fprintf(c->out, "</title><path d=\"M%.1f,%.1fl8,8m0,-8l-8,8\"/></g>\n", x - 4, y - 4);
}

/* Those that are listed last, so that no other covers them. */
static void write_points(const Chart *c)
{
    for (int listed = 0; listed < 2; listed++)
        for (int i = 0; i < c->answer->ncompiled; i++)
            if ((place_of(c, c->answer->compiled[i]) > 0) == listed)
                write_point(c, c->answer->compiled[i]);
}

/* --- Names --------------------------------------------------------------------------------------------- */

static bool is_free(const Chart *c, const Box *box, bool keeps_off)
{
    if (box->left < LEFT || box->right > WIDTH - RIGHT || box->top < TOP || box->bottom > HEIGHT - BOTTOM)
        return false;
    for (const Box *other = c->box; other < c->box + (keeps_off ? c->nboxes : c->ntaken); other++)
        if (box->left < other->right && other->left < box->right && box->top < other->bottom &&
            other->top < box->bottom)
            return false;
    return true;
}

enum { LETTER = 7, LINE = 16, AWAY = 11, TRIES = 2 * (2 * HEIGHT / LINE), NEAR = 10 };

/* To the right or left of a point, higher or lower. */
static Box box_beside(double x, double y, double width, int try)
{
    const int step = try / 2, lines = step % 2 ? -(step + 1) / 2 : step / 2; /* 0, -1, 1, -2, ... */
    const double left = try % 2 ? x - AWAY - width : x + AWAY, middle = y + LINE * lines;
    return (Box){ left, left + width, middle - LINE / 2.0, middle + LINE / 2.0 };
}

/* Near the point where no other is; else as near as other names permit. */
static Box free_box(const Chart *c, double x, double y, double width)
{
    for (int try = 0; try < NEAR + TRIES; try++) {
        const Box box = box_beside(x, y, width, try < NEAR ? try : try - NEAR);
        if (is_free(c, &box, try < NEAR))
            return box;
    }
    return box_beside(x, y, width, 0);
}

static void take(Chart *c, Box box)
{
    c->box[c->nboxes++] = c->box[c->ntaken];
    c->box[c->ntaken++] = box;
}

static void write_name(Chart *c, int place)
{
    const PlanResult *r = &c->answer->best[place];
    const char *name = arena_text(c->p->arena, "%d  %s", place + 1, layout_name(c->p->arena, c->p, &r->layout));
    const double x = x_of(c, r->seconds), y = y_of(c, gigabytes(r));
    const Box box = free_box(c, x, y, LETTER * (double)strlen(name));
    const bool is_left = box.right < x;
    const double from = is_left ? box.right : box.left, middle = (box.top + box.bottom) / 2;
    if (middle < y - 1 || middle > y + 1)
        fprintf(c->out, "<path class=\"to\" d=\"M%.1f,%.1fL%.1f,%.1f\"/>", x, y, from, middle);
    fprintf(c->out, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", from, middle + 4,
            is_left ? "end" : "start");
    write_escaped(name, c->out);
    fprintf(c->out, "</text>\n");
    take(c, box);
}

static void write_names(Chart *c)
{
    enum { RADIUS = 6 };
    const Answer *answer = c->answer;
    c->box = NEW_ARRAY(c->p->arena, Box, answer->ncompiled + 2 * answer->count + 1);
    for (int i = 0; i < answer->ncompiled + answer->count; i++) {
        const PlanResult *r = i < answer->ncompiled ? answer->compiled[i] : &answer->best[i - answer->ncompiled];
        const double x = x_of(c, r->seconds), y = y_of(c, gigabytes(r));
        const Box box = { x - RADIUS, x + RADIUS, y - RADIUS, y + RADIUS };
        if (i < answer->ncompiled)
            c->box[c->nboxes++] = box;
        else
            take(c, box);
    }
    for (int i = 0; i < answer->count; i++)
        write_name(c, i);
}

void write_plan_chart(const Planner *p, const Answer *answer, FILE *out)
{
    Chart c = { .p = p, .answer = answer, .out = out };
    scale_axes(&c);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"memory of a rank against the time of a step\">\n",
            WIDTH, HEIGHT);
    write_ticks(&c);
    write_memory(&c);
    write_points(&c);
    write_names(&c);
    fputs("</svg>\n", out);
}
