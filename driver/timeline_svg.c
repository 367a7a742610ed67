/* timeline_svg.c -- the drawing: actions, messages, idle time, memory, over one axis of time, in percent of its width.
 */
#include "timeline.h"

#include "diag.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    AXIS = 22,         /* above the rows, and below the strips */
    MEMORY_HEAD = 44,  /* between rows and strips */
    STAGGER = 6,       /* the last chunk of a rank is so much lower than the first */
    LANES_BELOW = 2,   /* the row of the rank */
    MOST_SCALE = 3,    /* capacity is drawn to scale if it is not more than so many peaks */
    STRIP_UNITS = 1000 /* the width of a strip in its own coordinates */
};

void write_escaped(const char *text, FILE *out)
{
    static const struct {
        char c;
        const char *entity;
    } special[] = { { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '"', "&quot;" }, { '\'', "&#39;" } };
    for (int length; *text; text += length ? length : 1) {
        length = visible_length(text, (int)strnlen(text, 4));
        size_t i = 0;
        while (i < sizeof special / sizeof *special && special[i].c != *text)
            i++;
        if (i < sizeof special / sizeof *special)
            fputs(special[i].entity, out);
        else
            fprintf(out, "%.*s", length ? length : 3, length ? text : "\xEF\xBF\xBD");
    }
}

void write_embedded(const char *const *line, FILE *out)
{
    for (; *line; line++)
        fputs(*line, out);
}

void write_hues(const TimelineView *v, FILE *out)
{
    const int micros = v->s ? v->s->micros : 0;
    for (int micro = 0; micro < micros; micro++) /* begin at blue */
        fprintf(out, ".m%d{--h:%.4g}%s", micro, 250 + 360.0 * micro / micros, micro % 8 == 7 ? "\n" : "");
}

/* --- Where things are ------------------------------------------------------------------------------ */

TimelineLayout lay_out_timeline(const TimelineView *v)
{
    static const struct {
        int ranks; /* at most */
        double row, lane, gap, strip;
    } sizes[] = { { 1, 44, 16, 19, 44 }, { 8, 34, 12, 19, 44 }, { 32, 24, 6, 9, 26 }, { INT_MAX, 16, 4, 5, 14 } };
    const int ranks = row_count(v), lanes = v->p->step ? v->p->step->nlanes : 0;
    int i = 0;
    while (ranks > sizes[i].ranks)
        i++;
    TimelineLayout l = { sizes[i].row, .lane = sizes[i].lane, .gap = sizes[i].gap, .strip = sizes[i].strip };
    l.rows_at = AXIS + 8;
    l.lanes = lanes ? LANES_BELOW + lanes * l.lane : 0;
    const double rows_end = l.rows_at + ranks * (l.row + l.lanes + l.gap) - l.gap;
    l.strips_at = rows_end + MEMORY_HEAD;
    l.height = (v->s ? l.strips_at + ranks * (l.strip + l.gap) - l.gap : rows_end) + 6 + AXIS;
    return l;
}

double row_at(const TimelineLayout *l, int rank) { return l->rows_at + rank * (l->row + l->lanes + l->gap); }

double lane_at(const TimelineLayout *l, int rank, int lane)
{
    return row_at(l, rank) + l->row + LANES_BELOW + lane * l->lane;
}

static double strip_at(const TimelineLayout *l, int rank) { return l->strips_at + rank * (l->strip + l->gap); }

/* Thousandths of a percent, as they are printed: so what touches in time does not overlap on paper. */
double percent_at(const TimelineView *v, double at)
{
    return v->to > v->from ? round((at - v->from) / (v->to - v->from) * 1e5) / 1e3 : 0;
}

double in_units(const TimelineView *v, double at) { return (at - v->from) / v->unit; }

double memory_scale(const TimelineView *v)
{
    const double peak = peak_of(v, v->fullest), capacity = v->p->capacity_bytes;
    const double most = capacity <= MOST_SCALE * peak ? fmax(peak, capacity) : peak;
    return most > 0 ? 1.08 * most : 1;
}

/* --- Labels ---------------------------------------------------------------------------------------- */

/* Pixels of "F12" in the fonts of the style sheet, of which DejaVu Sans is the widest; "s12", below it, is smaller. */
static double label_width(Action a)
{
    static const double letter[] = { 7.6, 7.6, 10.6 }, digit[] = { 7, 7, 6.6 }, small = 5.5, margin = 1;
    const int digits = snprintf(NULL, 0, "%d", a.micro);
    return fmax(letter[a.kind] + digits * digit[a.kind], small * snprintf(NULL, 0, "s%d", a.stage)) + margin;
}

static bool label_fits(const TimelineView *v, int rank, int i)
{
    const double pixels = TIMELINE_WIDTH * (v->t.end[rank][i] - v->t.start[rank][i]);
    return pixels >= label_width(v->s->action[rank][i]) * (v->to - v->from);
}

static void draw_label(const TimelineDrawing *d, int rank, int i, double x, double y)
{
    const Action a = d->v->s->action[rank][i];
    const bool two = d->v->s->chunks > 1 && d->layout.row >= LOW_ROW; /* lines */
    if (!label_fits(d->v, rank, i))
        return;
    fprintf(d->out, "<text x=\"%.7g%%\" y=\"%.6g\">%c%d</text>", x, y + (two ? -1 : 4), action_letter[a.kind], a.micro);
    if (two)
        fprintf(d->out, "<text class=\"small\" x=\"%.7g%%\" y=\"%.6g\">s%d</text>", x, y + 9, a.stage);
}

/* --- Actions --------------------------------------------------------------------------------------- */

static void draw_action(const TimelineDrawing *d, int rank, int i)
{
    static const char *const done[] = { "forward", "backward", "weight gradients" };
    const TimelineView *v = d->v;
    const Action a = v->s->action[rank][i];
    const double start = v->t.start[rank][i], end = v->t.end[rank][i], x = percent_at(v, start);
    const double width = percent_at(v, end) - x, stagger = v->s->chunks > 1 ? STAGGER : 0;
    const double y = row_at(&d->layout, rank) + (stagger ? chunk_of(v, a.stage) * stagger / (v->s->chunks - 1) : 0);
    const double height = d->layout.row - stagger;
    const double waits = action_waits(v, a);
    fprintf(d->out, "<g class=\"a %c m%d\" data-a=\"%c%d.%d\"><title>", action_letter[a.kind], a.micro,
            action_letter[a.kind], a.stage, a.micro);
    fprintf(d->out, "%s of micro-batch %d, stage %d, on rank %d: %.4g to %.4g %s", done[a.kind], a.micro, a.stage, rank,
            in_units(v, start), in_units(v, end), v->unit_name);
    if (waits > 0)
        fprintf(d->out, ", of these %.4g for messages of the stage", waits / v->unit);
    fprintf(d->out, "</title>");
    fprintf(d->out, "<rect x=\"%.7g%%\" y=\"%.6g\" width=\"%.7g%%\" height=\"%.6g\"/>", x, y, width, height);
    if (a.kind == WEIGHT_ACTION)
        fprintf(d->out, "<rect class=\"hatch\" x=\"%.7g%%\" y=\"%.6g\" width=\"%.7g%%\" height=\"%.6g\"/>", x, y, width,
                height);
    draw_label(d, rank, i, x + width / 2, y + height / 2);
    draw_action_bars(d, rank, i);
    fprintf(d->out, "</g>\n");
}

/* Where the reductions of a stage's gradients start: a triangle below the end of its last action. */
static void draw_reduction(const TimelineDrawing *d, int rank, int i)
{
    enum { SIZE = 5 };
    const TimelineView *v = d->v;
    const double y = row_at(&d->layout, rank) + d->layout.row;
    fprintf(d->out, "<svg class=\"reduction\" x=\"%.7g%%\" y=\"%.6g\" overflow=\"visible\"><title>",
            percent_at(v, v->t.end[rank][i]), y);
    fprintf(d->out, "the gradients of stage %d are reduced from %.4g %s on</title>", v->s->action[rank][i].stage,
            in_units(v, v->t.end[rank][i]), v->unit_name);
    fprintf(d->out, "<path d=\"M0 0L%d %dL%d %dZ\"/></svg>\n", -SIZE, SIZE, SIZE, SIZE);
}

static void draw_gap(const TimelineDrawing *d, int rank, double start, double end)
{
    const TimelineView *v = d->v;
    const double x = percent_at(v, start), width = percent_at(v, end) - x;
    if (width <= 0)
        return;
    fprintf(d->out, "<rect class=\"idle\" x=\"%.7g%%\" y=\"%.6g\" width=\"%.7g%%\" height=\"%.6g\">", x,
            row_at(&d->layout, rank), width, d->layout.row);
    fprintf(d->out, "<title>rank %d idle: %.4g to %.4g %s</title></rect>\n", rank, in_units(v, start), in_units(v, end),
            v->unit_name);
}

/* Between its own work before the pipeline, the actions, and its work after them. */
static void draw_idle(const TimelineDrawing *d, int rank)
{
    const TimelineView *v = d->v;
    double free = v->p->step ? busy_until(v, rank, false) : 0;
    for (int i = 0; i < v->s->nactions[rank]; i++) {
        draw_gap(d, rank, free, v->t.start[rank][i]);
        free = v->t.end[rank][i];
    }
    draw_gap(d, rank, v->p->step ? busy_until(v, rank, true) : free, v->to);
}

/* From the edge of the sender's row to that of the receiver's, over the time that a message takes. */
static void draw_message(const TimelineDrawing *d, int rank, int i)
{
    const TimelineView *v = d->v;
    const Action a = v->s->action[rank][i];
    const int stage = a.stage + (a.kind == FORWARD_ACTION ? 1 : -1);
    if (a.kind == WEIGHT_ACTION || stage < 0 || stage >= stage_count(v->s))
        return;
    const int to = rank_of_stage(v->s, stage);
    const double sent = v->t.end[rank][i], there = sent + (v->p->costs ? v->p->costs->message : 0);
    if (to == rank)
        return;
    fprintf(d->out, "<line class=\"s %c m%d\" x1=\"%.7g%%\" y1=\"%.6g\" x2=\"%.7g%%\" y2=\"%.6g\"/>\n", "FB"[a.kind],
            a.micro, percent_at(v, sent), row_at(&d->layout, rank) + (to > rank ? d->layout.row : 0),
            percent_at(v, there), row_at(&d->layout, to) + (to > rank ? 0 : d->layout.row));
}

static void draw_waits(const TimelineDrawing *d)
{
    const PipelineSchedule *s = d->v->s;
    for (int rank = 0; rank < s->ranks; rank++)
        draw_idle(d, rank);
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++)
            draw_message(d, rank, i);
}

static void draw_actions(const TimelineDrawing *d)
{
    const PipelineSchedule *s = d->v->s;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++)
            draw_action(d, rank, i);
    for (int rank = 0; rank < s->ranks && s->reduces; rank++)
        for (int i = 0; i < s->nactions[rank]; i++)
            if (ends_stage(s, rank, i))
                draw_reduction(d, rank, i);
}

/* Lanes of messages over those of the pipeline. */
static void draw_lanes(const TimelineDrawing *d)
{
    const TimelineStep *step = d->v->p->step;
    for (int rank = 0; step && rank < row_count(d->v); rank++)
        for (int lane = 0; lane < step->nlanes; lane++)
            fprintf(d->out, "<rect class=\"lane\" x=\"0\" y=\"%.6g\" width=\"100%%\" height=\"%.6g\"/>\n",
                    lane_at(&d->layout, rank, lane), d->layout.lane - 1);
}

static void draw_rows(const TimelineDrawing *d)
{
    if (d->v->s)
        draw_waits(d);
    draw_lanes(d);
    if (d->v->s)
        draw_actions(d);
    for (int rank = 0; d->v->p->step && rank < row_count(d->v); rank++)
        draw_bars_around(d, rank);
}

/* --- Memory ---------------------------------------------------------------------------------------- */

/* The area between `floor` and the curve where that is higher, as a path in the strip's own coordinates. */
static void draw_area(const TimelineDrawing *d, int rank, const char *class, double floor)
{
    const TimelineView *v = d->v;
    const MemoryCurve *curve = &v->memory[rank];
    const double scale = memory_scale(v), height = d->layout.strip, bottom = height * (1 - floor / scale);
    fprintf(d->out, "<path class=\"%s\" d=\"M0 %.5g", class, bottom);
    for (int i = 0; i < curve->count; i++)
        fprintf(d->out, "H%.6gV%.5g", percent_at(v, curve->level[i].at) * STRIP_UNITS / 100,
                height * (1 - fmax(floor, curve->level[i].bytes) / scale));
    fprintf(d->out, "H%dV%.5gZ\"/>", STRIP_UNITS, bottom);
}

static void draw_strip(const TimelineDrawing *d, int rank)
{
    TimelineView *v = d->v;
    const double scale = memory_scale(v), height = d->layout.strip, capacity = v->p->capacity_bytes;
    const double fixed = v->p->fixed_bytes[rank], peak = peak_of(v, rank), y = strip_at(&d->layout, rank);
    const double top = height * (1 - peak / scale), when = v->memory[rank].level[v->memory[rank].peak].at;
    fprintf(d->out,
            "<g class=\"memory\" data-rank=\"%d\"><title>rank %d: peak %s at %.4g %s, %s of these fixed</title>", rank,
            rank, bytes_text(&v->arena, peak), in_units(v, when), v->unit_name, bytes_text(&v->arena, fixed));
    fprintf(d->out, "<rect class=\"strip\" x=\"0\" y=\"%.6g\" width=\"100%%\" height=\"%.6g\"/>\n", y, height);
    fprintf(d->out, "<svg x=\"0\" y=\"%.6g\" width=\"100%%\" height=\"%.6g\" viewBox=\"0 0 %d %.6g\" ", y, height,
            STRIP_UNITS, height);
    fprintf(d->out, "preserveAspectRatio=\"none\">");
    fprintf(d->out, "<rect class=\"fixed\" x=\"0\" y=\"%.6g\" width=\"%d\" height=\"%.6g\"/>",
            height * (1 - fixed / scale), STRIP_UNITS, height * fixed / scale);
    draw_area(d, rank, "flight", fixed);
    if (capacity > 0 && peak > capacity)
        draw_area(d, rank, "over", fmax(fixed, capacity));
    fprintf(d->out, "</svg>\n");
    if (capacity > 0 && capacity < scale)
        fprintf(d->out, "<line class=\"capacity\" x1=\"0\" x2=\"100%%\" y1=\"%.6g\" y2=\"%.6g\"/>",
                y + height * (1 - capacity / scale), y + height * (1 - capacity / scale));
    fprintf(d->out, "<circle class=\"peak\" cx=\"%.7g%%\" cy=\"%.6g\" r=\"2.5\"/></g>\n", percent_at(v, when), y + top);
}

/* --- The whole drawing ----------------------------------------------------------------------------- */

static void draw_tick(const TimelineDrawing *d, double time)
{
    const TimelineView *v = d->v;
    const double x = percent_at(v, v->from + time * v->unit), height = d->layout.height;
    const char *anchor = time > 0 ? x > 97 ? "end" : "middle" : "start";
    fprintf(d->out, "<g><line x1=\"%.7g%%\" x2=\"%.7g%%\" y1=\"%d\" y2=\"%.6g\"/>", x, x, AXIS - 4, height - AXIS + 2);
    fprintf(d->out, "<text x=\"%.7g%%\" y=\"%d\" text-anchor=\"%s\">%.6g</text>", x, AXIS - 9, anchor, time);
    fprintf(d->out, "<text x=\"%.7g%%\" y=\"%.6g\" text-anchor=\"%s\">%.6g</text></g>\n", x, height - 6, anchor, time);
}

/* Lines behind everything, numbers above and below. */
static void draw_axis(const TimelineDrawing *d)
{
    enum { MOST_TICKS = 12 };
    const double span = in_units(d->v, d->v->to), step = tick_step(span, MOST_TICKS);
    fprintf(d->out, "<g class=\"axis\">\n");
    for (int tick = 0; tick * step <= span * (1 + 1e-9); tick++)
        draw_tick(d, tick * step);
    fprintf(d->out, "</g>\n");
}

/* W is hatched, for print and for those who do not tell its colour from that of F and B. */
static void draw_patterns(const TimelineDrawing *d)
{
    fprintf(d->out,
            "<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><rect width=\"1.6\" height=\"5\" class=\"ink\"/></pattern></defs>\n");
}

void draw_timeline(TimelineView *v, FILE *out)
{
    const TimelineDrawing d = { v, lay_out_timeline(v), out };
    const double pixels = v->s && v->to > v->from ? TIMELINE_WIDTH * v->shortest / (v->to - v->from) : 0;
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"%s\" height=\"%.6g\" role=\"img\" ",
            pixels < 5 ? "narrow" : "wide", d.layout.height);
    fprintf(out, "data-end=\"%.9g\" data-unit=\"%s\" aria-label=\"", in_units(v, v->to), v->unit_name);
    write_escaped(counts_text(v), out);
    fprintf(out, "\">\n");
    draw_patterns(&d);
    draw_axis(&d);
    draw_rows(&d);
    for (int rank = 0; v->s && rank < v->s->ranks; rank++)
        draw_strip(&d, rank);
    fprintf(out, "</svg>\n");
}
