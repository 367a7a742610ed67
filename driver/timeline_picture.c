/* timeline_picture.c -- the drawing of a schedule as one SVG, which a README or slides can show: title, names of ranks,
 * legend.  What the page says in its table and under the mouse is left out. */
#include "timeline.h"

#include "drawing.h"

#include <string.h>

enum {
    MARGIN = 16,
    NAMES = 260, /* the width of the names, beside the drawing */
    HEAD = 66,   /* above the drawing */
    FOOT = 40,   /* below it: the legend, */
    MORE = 20,   /* and that of the step */
    WIDTH = MARGIN + NAMES + TIMELINE_WIDTH + MARGIN,
    LINE = 14,
    LETTER = 6, /* the width of an average one */
    BESIDE = 58 /* what stands beside "rank 63" */
};

typedef struct {
    TimelineView v;
    TimelineLayout layout;
    double legend_at; /* the base of its text */
    FILE *out;
} Picture;

static void write_style(const Picture *p)
{
    fputs("<style>\n", p->out);
    write_embedded(drawing_css, p->out);
    fputs("text{fill:var(--text);font:12px var(--font)}\n"
          ".title{font-size:18px;font-weight:650}.rank{font-weight:600}.faint{fill:var(--faint)}\n"
          ".axes{font-size:10px;text-anchor:end}.paper{fill:var(--page)}\n",
          p->out);
    write_hues(&p->v, p->out);
    fputs("\n</style>\n", p->out);
}

static void write_text(const Picture *p, const char *class, double x, double y, const char *text)
{
    fprintf(p->out, "<text class=\"%s\" x=\"%.6g\" y=\"%.6g\">", class, x, y);
    write_escaped(text, p->out);
    fputs("</text>\n", p->out);
}

static const char *step_text(TimelineView *v)
{
    const TimelineStep *step = v->p->step;
    return step ? arena_text(&v->arena, "; step %s, %s", duration_text(v, step->seconds), step->rate) : "";
}

static void write_head(Picture *p)
{
    TimelineView *v = &p->v;
    write_text(p, "title", MARGIN, 30, v->p->title);
    write_text(p, "faint", MARGIN, 50,
               v->s ? arena_text(&v->arena, "%s: makespan %.4g %s, bubble %.1f %%%s", counts_text(v),
                                 v->t.makespan / v->unit, v->unit_name, 100 * v->t.bubble, step_text(v))
                    : arena_text(&v->arena, "%s%s", counts_text(v), step_text(v)));
}

/* --- Names ----------------------------------------------------------------------------------------- */

/* Around the middle of a row of this height: below each other where there is room, else beside each other. */
static void write_name(Picture *p, double at, double height, int rank, const char *more)
{
    const char *name = row_name(&p->v, rank);
    const double middle = HEAD + at + height / 2 + 4;
    const bool low = height < LOW_ROW;
    const int room = (NAMES - (low ? BESIDE : 0)) / LETTER;
    if ((int)strlen(more) > room)
        more = arena_text(&p->v.arena, "%.*s...", room - 3, more);
    write_text(p, "rank", MARGIN, low ? middle : middle - LINE / 2.0, name);
    write_text(p, "faint", low ? MARGIN + BESIDE : MARGIN, low ? middle : middle + LINE / 2.0, more);
}

/* Beside each lane, at the right, where there is room. */
static void write_lane_names(Picture *p, int rank)
{
    enum { TO_DRAWING = 8 };
    const TimelineStep *step = p->v.p->step;
    const TimelineLayout *l = &p->layout;
    for (int lane = 0; step && l->lane >= LOW_LANE && lane < step->nlanes; lane++) {
        const char *name = step->lane[lane];
        write_text(p, "faint axes", MARGIN + NAMES - TO_DRAWING, HEAD + lane_at(l, rank, lane) + l->lane / 2 + 3, name);
    }
}

static void write_names(Picture *p)
{
    TimelineView *v = &p->v;
    const TimelineLayout *l = &p->layout;
    const double strip = l->strip + l->gap;
    write_text(p, "faint", MARGIN, HEAD + 13, arena_text(&v->arena, "time in %s", v->unit_name));
    for (int rank = 0; rank < row_count(v); rank++) {
        write_name(p, row_at(l, rank), l->row, rank, v->s ? stages_on_rank(v, rank) : "computes");
        write_lane_names(p, rank);
    }
    if (!v->s)
        return;
    write_text(p, "faint", MARGIN, HEAD + l->strips_at - 14,
               arena_text(&v->arena, "memory, 0 to %s", bytes_text(&v->arena, memory_scale(v))));
    for (int rank = 0; rank < v->s->ranks; rank++)
        write_name(p, l->strips_at + rank * strip, l->strip, rank,
                   arena_text(&v->arena, "peak %s", bytes_text(&v->arena, peak_of(v, rank))));
}

/* --- Legend ---------------------------------------------------------------------------------------- */

enum { SWATCH = 24 };
#define BOX "<rect width=\"24\" height=\"14\"/>"

/* Returns where the next one begins. */
static double write_swatch(const Picture *p, double x, const char *drawing, const char *meaning)
{
    enum { TO_TEXT = 7, GAP = 22, WIDE = 7 /* letters of words that nothing cuts */ };
    const double y = p->legend_at;
    fprintf(p->out, "<svg x=\"%.6g\" y=\"%.6g\" width=\"%d\" height=\"14\">%s</svg>\n", x, y - 11, SWATCH, drawing);
    write_text(p, "faint", x + SWATCH + TO_TEXT, y, meaning);
    return x + SWATCH + TO_TEXT + WIDE * (double)strlen(meaning) + GAP;
}

static double write_actions_legend(const Picture *p, double x)
{
    const PipelineSchedule *s = p->v.s;
    x = write_swatch(p, x, "<g class=\"F m0\">" BOX "</g>", "forward");
    x = write_swatch(p, x, "<g class=\"B m0\">" BOX "</g>", "backward");
    if (s->splits_backward)
        x = write_swatch(p, x, "<g class=\"a W m0\">" BOX "<rect class=\"hatch\" width=\"24\" height=\"14\"/></g>",
                         "weight gradients");
    x = write_swatch(p, x, "<g class=\"idle\">" BOX "</g>", "idle");
    if (s->reduces)
        x = write_swatch(p, x, "<g class=\"reduction\"><path d=\"M12 4L7 9L17 9Z\"/></g>", "reduced from there on");
    return x;
}

/* Light and dark of a phase are one: kernels beside products. */
static void write_step_legend(Picture *p, double x)
{
    const TimelineStep *step = p->v.p->step;
    for (int i = 0; i < WORK_PHASES; i++)
        if (step->class_name[i] || step->class_name[WORK_PHASES + i])
            x = write_swatch(p, x, arena_text(&p->v.arena, "<g class=\"c%d\">" BOX "</g>", i), step->phase_name[i]);
    if (step->nlanes) {
        x = write_swatch(p, x, "<rect class=\"u0\" y=\"3\" width=\"24\" height=\"8\"/>", "messages beside computation");
        write_swatch(p, x, "<rect class=\"w0\" y=\"3\" width=\"24\" height=\"8\"/>", "waits for messages");
    }
}

/* The pipeline's, and below it that of the step: where both are, they do not fit beside each other. */
static void write_legend(Picture *p)
{
    double x = MARGIN;
    p->legend_at = HEAD + p->layout.height + FOOT - 16;
    if (p->v.s) {
        x = write_actions_legend(p, x);
        x = write_swatch(p, x, "<g class=\"fixed\">" BOX "</g>", "memory held all the step");
        x = write_swatch(p, x, "<g class=\"flight\">" BOX "</g>", "activations in flight");
        if (p->v.p->capacity_bytes > 0)
            write_swatch(p, x, "<line class=\"capacity\" y1=\"7\" x2=\"24\" y2=\"7\"/>", "capacity");
        p->legend_at += MORE;
    }
    if (p->v.p->step)
        write_step_legend(p, MARGIN);
}

void write_timeline_svg(const TimelinePicture *picture, FILE *out)
{
    Picture p = { .v = view_timeline(picture), .out = out };
    p.layout = lay_out_timeline(&p.v);
    const double height = HEAD + p.layout.height + FOOT + (picture->schedule && picture->step ? MORE : 0);
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.6g\" width=\"%d\" height=\"%.6g\">\n",
            WIDTH, height, WIDTH, height);
    write_style(&p);
    fputs("<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n", out);
    write_head(&p);
    write_names(&p);
    fprintf(out, "<svg x=\"%d\" y=\"%d\" width=\"%d\" overflow=\"visible\">\n", MARGIN + NAMES, HEAD, TIMELINE_WIDTH);
    draw_timeline(&p.v, out);
    fputs("</svg>\n", out);
    write_legend(&p);
    fputs("</svg>\n", out);
    arena_free(&p.v.arena);
}
