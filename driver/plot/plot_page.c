/* plot_page.c -- the page around the charts: title, switches, a table of the runs. */
#include "plot/plot.h"
#include "timeline.h"

#include "charts.h"

#include <math.h>
#include <stdlib.h>

void write_page_head(const char *title, const char *const *more, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>",
          out);
    write_escaped(title, out);
    fputs("</title>\n<style>\n", out);
    write_embedded(chart_css, out);
    write_embedded(charts_css, out);
    if (more)
        write_embedded(more, out);
    fputs("</style>\n</head>\n<body>\n<h1>", out);
    write_escaped(title, out);
    fputs("</h1>\n", out);
}

void write_page_end(const char *const *script, FILE *out)
{
    fputs("<script>\n", out);
    write_embedded(script, out);
    fputs("</script>\n</body>\n</html>\n", out);
}

static void write_switch(FILE *out, const char *id, const char *text, bool is_on)
{
    fprintf(out, "<input type=\"checkbox\" id=\"%s\"%s/><label for=\"%s\">%s</label>\n", id,
            is_on ? " checked=\"checked\"" : "", id, text);
}

/* --- Table ----------------------------------------------------------------------------------------- */

static double median_of(Arena *arena, const PlotRun *log, PlotColumn column)
{
    double *sorted = NEW_ARRAY(arena, double, log->count);
    int count = 0;
    for (int i = 0; i < log->count; i++)
        if (isfinite(log->value[column][i]))
            sorted[count++] = log->value[column][i];
    qsort(sorted, (size_t)count, sizeof *sorted, smaller_first);
    return count ? sorted[count / 2] : (double)NAN;
}

static double sum_of(const PlotRun *log, PlotColumn column)
{
    double sum = 0;
    for (int i = 0; i < log->count; i++)
        sum += isfinite(log->value[column][i]) ? log->value[column][i] : 0;
    return sum;
}

/* The last `window` steps that have a number. */
static double last_mean(const PlotRun *log, PlotColumn column, double window)
{
    double sum = 0, count = 0;
    for (int i = log->count - 1; i >= 0 && (count == 0 || log->step[log->count - 1] - log->step[i] < window); i--)
        if (isfinite(log->value[column][i])) {
            sum += log->value[column][i];
            count++;
        }
    return sum / count;
}

static const char *lowest_text(Arena *arena, const PlotRun *log, PlotColumn column)
{
    int best = -1;
    for (int i = 0; i < log->count; i++)
        if (isfinite(log->value[column][i]) && (best < 0 || log->value[column][i] < log->value[column][best]))
            best = i;
    return best < 0 ? "" : arena_text(arena, "%.4f at %.0f", log->value[column][best], log->step[best]);
}

static const char *time_text(Arena *arena, double seconds)
{
    const int64_t whole = (int64_t)(seconds + 0.5);
    if (whole >= 3600)
        return arena_text(arena, "%lld h %02lld min", (long long)(whole / 3600), (long long)(whole / 60 % 60));
    return whole >= 60 ? arena_text(arena, "%lld min %02lld s", (long long)(whole / 60), (long long)(whole % 60))
                       : arena_text(arena, "%.3g s", seconds);
}

static const char *number_text(Arena *arena, double number, const char *format)
{
    char text[40];
    snprintf(text, sizeof text, format, number);
    return isfinite(number) ? arena_text(arena, "%s", text) : "";
}

static const char *rate_text(Arena *arena, const PlotRun *log)
{
    const double rate = median_of(arena, log, PLOT_RATE);
    return isfinite(rate)
               ? arena_text(arena, "%s %s/s", tick_text(arena, rate), log->counts_records ? "records" : "tokens")
               : "";
}

static void write_row(const Plot *plot, int run, bool has_eval, bool has_skips, FILE *out)
{
    Arena *arena = &plot->run->arena;
    const PlotRun *log = &plot->runs[run];
    fprintf(out, "<tr><td><svg viewBox=\"0 0 24 10\"><path class=\"smooth c%d%s\" d=\"M1,5h22\"/></svg>",
            run % PLOT_COLOURS, run < PLOT_COLOURS ? "" : " dashed");
    write_escaped(log->name, out);
    fprintf(out, "</td><td>%.0f</td><td>%s</td>", log->step[log->count - 1],
            number_text(arena, last_mean(log, PLOT_LOSS, plot->window), "%.4f"));
    if (has_eval)
        fprintf(out, "<td>%s</td>", lowest_text(arena, log, PLOT_EVAL));
    fprintf(out, "<td>%s</td><td>%s</td>", rate_text(arena, log), time_text(arena, sum_of(log, PLOT_MS) / 1e3));
    if (has_skips)
        fprintf(out, "<td>%.0f</td>", sum_of(log, PLOT_SKIPPED));
    fputs("</tr>\n", out);
}

static void write_table(const Plot *plot, FILE *out)
{
    const bool has_eval = is_drawn(plot, PLOT_EVAL), has_skips = is_drawn(plot, PLOT_SKIPPED);
    fputs("<div class=\"table\"><table>\n<tr><th>run</th><th>steps</th>", out);
    if (plot->window > 1)
        fprintf(out, "<th>loss, last %.0f steps</th>", plot->window);
    else
        fputs("<th>last loss</th>", out);
    fprintf(out, "%s<th>throughput, median</th><th>time of steps</th>%s</tr>\n",
            has_eval ? "<th>lowest evaluation</th>" : "", has_skips ? "<th>skipped</th>" : "");
    for (int run = 0; run < plot->nruns; run++)
        write_row(plot, run, has_eval, has_skips, out);
    fputs("</table></div>\n", out);
}

void write_plot(const Plot *plot, FILE *out)
{
    write_page_head(plot->title, NULL, out);
    if (plot->window > 1)
        fprintf(out, "<p>Strong lines are means over %.0f steps, faint ones single steps.</p>\n", plot->window);
    enum { FEW = 4 }; /* runs whose single steps do not cover each other */
    write_switch(out, "logx", "log steps", false);
    write_switch(out, "logy", "log y", false);
    if (plot->window > 1)
        write_switch(out, "raw", "single steps", plot->nruns <= FEW);
    fputs("<div class=\"charts\">\n", out);
    for (PlotColumn column = 0; column < PLOT_CHARTS; column++) {
        if (!is_drawn(plot, column))
            continue;
        fputs("<div>\n", out);
        write_chart(plot, column, out);
        fputs("</div>\n", out);
    }
    fputs("</div>\n", out);
    write_table(plot, out);
    write_ranks(plot, out);
    write_page_end(charts_js, out);
}
