/* plot_svg.c -- one chart: all runs, in a page drawn four times, for each pair of even and logarithmic axes, of which
 * the style sheet shows one. */
#include "plot/plot.h"
#include "timeline.h"

#include "charts.h"

#include <math.h>

enum {
    WIDTH = 720, /* pixels; the page scales them */
    HEIGHT = 400,
    LEFT = 62,
    RIGHT = 18,
    TOP = 56,
    BOTTOM = 44,
    LEGEND_ROW = 19,
    TICKS_X = 8,
    TICKS_Y = 7,
    MOST_TICKS = 32
};

typedef struct {
    const Plot *plot;
    PlotColumn column;
    FILE *out;
    PlotScale x, y;
    double top; /* of the area of the curves, below the legend */
} Chart;

static double x_of(const Chart *c, double step) { return LEFT + plot_place(&c->x, step) * (WIDTH - LEFT - RIGHT); }

static double y_of(const Chart *c, double number)
{
    const double bottom = HEIGHT - BOTTOM;
    return bottom - plot_place(&c->y, number) * (bottom - c->top);
}

/* --- Text ----------------------------------------------------------------------------------------- */

static const char *title_of(const Chart *c)
{
    static const char *const titles[PLOT_CHARTS] = {
        [PLOT_LOSS] = "Loss",        [PLOT_NORM] = "Gradient norm",   [PLOT_RATE] = "Throughput",
        [PLOT_LR] = "Learning rate", [PLOT_LOAD] = "Load of experts", [PLOT_DROPPED] = "Dropped choices",
    };
    return titles[c->column];
}

/* The unit of its numbers. */
static const char *unit_of(const Chart *c)
{
    bool tokens = false, records = false;
    for (int i = 0; i < c->plot->nruns; i++)
        *(c->plot->runs[i].counts_records ? &records : &tokens) = true;
    static const char *const units[PLOT_CHARTS] = {
        [PLOT_LOSS] = "mean over the batch",      [PLOT_NORM] = "before clipping",       [PLOT_LR] = "of the schedule",
        [PLOT_LOAD] = "most / mean, worst layer", [PLOT_DROPPED] = "share, worst layer",
    };
    if (c->column != PLOT_RATE)
        return units[c->column];
    return tokens && records ? "tokens or records per second" : tokens ? "tokens per second" : "records per second";
}

static const char *dash_of(int run) { return run < PLOT_COLOURS ? "" : " dashed"; }

/* What is not part of a curve: a dot for an evaluation, a cross for a step that was skipped. */
static void write_mark(const Chart *c, PlotColumn column, double x, double y, int run)
{
    if (column == PLOT_EVAL)
        fprintf(c->out, "<circle class=\"eval c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", run % PLOT_COLOURS, x, y);
    else
        fprintf(c->out, "<path class=\"skip c%d\" d=\"M%.1f,%.1fl8,8m0,-8l-8,8\"/>", run % PLOT_COLOURS, x - 4, y - 4);
}

bool is_drawn(const Plot *plot, PlotColumn column)
{
    for (int run = 0; run < plot->nruns; run++)
        for (int i = 0; i < plot->runs[run].count; i++)
            if (isfinite(plot->runs[run].value[column][i]))
                return true;
    return false;
}

static bool has_marks(const Plot *plot, PlotColumn column)
{
    bool has = false;
    for (const PlotRun *log = plot->runs; log < plot->runs + plot->nruns; log++)
        for (int i = 0; i < log->count; i++)
            has |= column == PLOT_SKIPPED ? log->value[column][i] > 0 : isfinite(log->value[column][i]);
    return has;
}

/* The column of marks on this chart; PLOT_COLUMNS: it has none. */
static PlotColumn marks_of(const Chart *c)
{
    const PlotColumn column = c->column == PLOT_LOSS ? PLOT_EVAL : c->column == PLOT_NORM ? PLOT_SKIPPED : PLOT_COLUMNS;
    return column < PLOT_COLUMNS && has_marks(c->plot, column) ? column : PLOT_COLUMNS;
}

/* The names of runs and marks, in rows; returns their number.  `draws`: else it only counts. */
static int write_legend(const Chart *c, bool draws)
{
    enum { SWATCH = 24, GAP = 22, LETTER = 7 };
    const PlotColumn marks = marks_of(c);
    const bool is_one = c->plot->nruns == 1; /* with marks, its curve has a name too */
    const int first = is_one && marks == PLOT_COLUMNS ? 1 : 0, last = c->plot->nruns - (marks == PLOT_COLUMNS);
    double x = LEFT;
    int row = 0;
    for (int i = first; i <= last; i++) {
        const bool is_mark = i == c->plot->nruns;
        const char *run = is_one ? "training" : c->plot->runs[i < c->plot->nruns ? i : 0].name;
        const char *name = !is_mark ? run : marks == PLOT_EVAL ? "evaluation" : "skipped step";
        int letters = 0;
        for (const char *t = name; *t; t++)
            letters += (*t & 0xC0) != 0x80; /* not a continuation of UTF-8 */
        const double width = SWATCH + 6 + LETTER * letters;
        if (x > LEFT && x + width > WIDTH - RIGHT) {
            x = LEFT;
            row++;
        }
        const double y = TOP + LEGEND_ROW * row;
        if (draws && is_mark)
            write_mark(c, marks, x + SWATCH / 2.0, y, 0);
        else if (draws)
            fprintf(c->out, "<path class=\"smooth c%d%s\" d=\"M%.1f,%.1fh%d\"/>", i % PLOT_COLOURS, dash_of(i), x, y,
                    SWATCH);
        if (draws) {
            fprintf(c->out, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">", x + SWATCH + 6, y + 4);
            write_escaped(name, c->out);
            fprintf(c->out, "</text>\n");
        }
        x += width + GAP;
    }
    return first > last ? 0 : row + 1;
}

static void write_frame(const Chart *c, const char *title, const char *unit)
{
    fprintf(c->out, "<text class=\"title\" x=\"%d\" y=\"22\">", LEFT);
    write_escaped(title, c->out);
    fprintf(c->out, "</text><text class=\"unit\" x=\"%d\" y=\"39\">%s</text>\n", LEFT, unit);
    fprintf(c->out, "<text class=\"unit\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
    write_legend(c, true);
}

/* --- Axes ----------------------------------------------------------------------------------------- */

static void write_axes(const Chart *c)
{
    Arena *arena = &c->plot->run->arena;
    double ticks[MOST_TICKS];
    int count = ticks_of(&c->y, TICKS_Y, ticks, MOST_TICKS);
    for (int i = 0; i < count; i++) {
        const double y = y_of(c, ticks[i]);
        fprintf(c->out,
                "<path class=\"grid\" d=\"M%d,%.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, tick_text(arena, ticks[i]));
    }
    count = ticks_of(&c->x, TICKS_X, ticks, MOST_TICKS);
    for (int i = 0; i < count; i++)
        fprintf(c->out,
                "<path class=\"axis\" d=\"M%.1f,%dv5\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%s</text>\n",
                x_of(c, ticks[i]), HEIGHT - BOTTOM, x_of(c, ticks[i]), HEIGHT - BOTTOM + 19,
                tick_text(arena, ticks[i]));
    fprintf(c->out, "<path class=\"axis\" d=\"M%d,%dH%d\"/>\n", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT);
}

/* --- Curves --------------------------------------------------------------------------------------- */

/* What a curve does in one column of pixels: so a file is no larger than the picture, and no spike is lost. */
typedef struct {
    double x, first, low, high; /* places */
    double last_x, last;
    bool is_open; /* has a number */
    bool is_line; /* a column before it had one, without a gap between them */
} Column;

static void end_column(const Chart *c, Column *column)
{
    if (!column->is_open)
        return;
    fprintf(c->out, "%c%.1f,%.1f", column->is_line ? 'L' : 'M', column->x, column->first);
    if (column->low < fmin(column->first, column->last) - 0.1)
        fprintf(c->out, "V%.1f", column->low);
    if (column->high > fmax(column->first, column->last) + 0.1)
        fprintf(c->out, "V%.1f", column->high);
    if (column->last_x > column->x)
        fprintf(c->out, "L%.1f,%.1f", column->last_x, column->last);
    else if (!column->is_line)
        fputs("h0", c->out); /* a single point, drawn by its round cap */
    column->is_open = false;
    column->is_line = true;
}

static void write_curve(const Chart *c, int run, const double *value, const char *class)
{
    const PlotRun *log = &c->plot->runs[run];
    Column column = { .is_open = false };
    fprintf(c->out, "<path class=\"%s c%d%s\" d=\"", class, run % PLOT_COLOURS, dash_of(run));
    for (int i = 0; i < log->count; i++) {
        const double x = x_of(c, log->step[i]), y = y_of(c, value[i]);
        if (!isfinite(y) || !isfinite(x)) {
            end_column(c, &column);
            column.is_line = false;
            continue;
        }
        if (column.is_open && floor(x) != floor(column.x))
            end_column(c, &column);
        if (!column.is_open)
            column = (Column){ x, y, y, y, x, y, true, column.is_line };
        column.low = fmin(column.low, y);
        column.high = fmax(column.high, y);
        column.last_x = x;
        column.last = y;
    }
    end_column(c, &column);
    fputs("\"/>\n", c->out);
}

/* Evaluations are joined; what lies above the area is drawn on its edge. */
static void write_marks(const Chart *c, PlotColumn column, int run)
{
    const PlotRun *log = &c->plot->runs[run];
    if (column == PLOT_EVAL)
        fprintf(c->out, "<path class=\"between c%d\" d=\"", run % PLOT_COLOURS);
    for (int i = 0, is_line = 0; column == PLOT_EVAL && i < log->count; i++)
        if (isfinite(x_of(c, log->step[i])) && isfinite(y_of(c, log->value[column][i])))
            fprintf(c->out, "%c%.1f,%.1f", is_line++ ? 'L' : 'M', x_of(c, log->step[i]),
                    y_of(c, log->value[column][i]));
    if (column == PLOT_EVAL)
        fputs("\"/>\n", c->out);
    for (int i = 0; i < log->count; i++) {
        const double x = x_of(c, log->step[i]);
        double y = y_of(c, log->value[column == PLOT_EVAL ? column : c->column][i]);
        if (column == PLOT_SKIPPED && !(log->value[column][i] > 0))
            continue;
        if (column == PLOT_SKIPPED && !(y > c->top)) /* or no number */
            y = c->top;
        if (isfinite(x) && isfinite(y))
            write_mark(c, column, x, y, run);
    }
    fputc('\n', c->out);
}

static int64_t count_outside(const Chart *c)
{
    int64_t count = 0;
    for (const PlotRun *log = c->plot->runs; log < c->plot->runs + c->plot->nruns; log++)
        for (int i = 0; i < log->count; i++) {
            const double place = plot_place(&c->y, log->value[c->column][i]);
            count += place < 0 || place > 1;
        }
    return count;
}

/* --- The chart ------------------------------------------------------------------------------------- */

static void write_variant(Chart *c, bool log_x, bool log_y)
{
    const PlotColumn marks = marks_of(c);
    c->x = scale_of(c->plot, PLOT_COLUMNS, log_x);
    c->y = scale_of(c->plot, c->column, log_y);
    fprintf(c->out, "<g class=\"x%d y%d\" data-x=\"%d %g %g %d %d\" data-y=\"%d %g %g %d %g\">\n", log_x, log_y, log_x,
            c->x.low, c->x.high, LEFT, WIDTH - RIGHT, log_y, c->y.low, c->y.high, HEIGHT - BOTTOM, c->top);
    write_axes(c);
    fprintf(c->out, "<g clip-path=\"url(#area%d)\">\n", c->column);
    for (int run = 0; run < c->plot->nruns; run++)
        if (c->plot->runs[run].smooth[c->column] != c->plot->runs[run].value[c->column])
            write_curve(c, run, c->plot->runs[run].value[c->column], "raw");
    for (int run = 0; run < c->plot->nruns; run++)
        write_curve(c, run, c->plot->runs[run].smooth[c->column], "smooth");
    fputs("</g>\n", c->out);
    for (int run = 0; marks < PLOT_COLUMNS && run < c->plot->nruns; run++)
        write_marks(c, marks, run);
    const int64_t outside = count_outside(c);
    if (outside > 0)
        fprintf(c->out,
                "<text class=\"unit\" x=\"%d\" y=\"39\" text-anchor=\"end\">%lld step%s outside of the chart</text>\n",
                WIDTH - RIGHT, (long long)outside, outside == 1 ? "" : "s");
    fputs("</g>\n", c->out);
}

/* Up to the curves. */
static Chart open_chart(const Plot *plot, PlotColumn column, const char *more, FILE *out)
{
    Chart c = { .plot = plot, .column = column, .out = out };
    c.top = TOP + LEGEND_ROW * write_legend(&c, false);
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\"%s role=\"img\" aria-label=\"%s\">\n",
            WIDTH, HEIGHT, more, title_of(&c));
    fprintf(out, "<clipPath id=\"area%d\"><rect x=\"%d\" y=\"%g\" width=\"%d\" height=\"%g\"/></clipPath>\n", column,
            LEFT, c.top - 1, WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM - c.top + 2);
    return c;
}

void write_chart(const Plot *plot, PlotColumn column, FILE *out)
{
    Chart c = open_chart(plot, column, "", out);
    write_frame(&c, title_of(&c), unit_of(&c));
    for (int i = 0; i < 4; i++)
        write_variant(&c, i & 1, i >> 1);
    fprintf(out, "<g class=\"cursor\"><path d=\"M0,%gV%d\"/><text y=\"%g\"></text></g>\n</svg>\n", c.top,
            HEIGHT - BOTTOM, c.top + 12);
}

void write_loss_picture(const Plot *plot, FILE *out)
{
    Arena *arena = &plot->run->arena;
    const char *size = arena_text(arena, " width=\"%d\" height=\"%d\"", WIDTH, HEIGHT);
    Chart c = open_chart(plot, PLOT_LOSS, size, out);
    fputs("<style>\n", out);
    write_embedded(chart_css, out);
    fputs("text{font-family:var(--font)}\n.paper{fill:var(--card)}\n</style>\n", out);
    fputs("<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n", out);
    const char *means = plot->window > 1 ? arena_text(arena, "; strong lines: over %.0f steps", plot->window) : "";
    write_frame(&c, plot->title, arena_text(arena, "loss, %s%s", unit_of(&c), means));
    write_variant(&c, false, false);
    fputs("</svg>\n", out);
}
