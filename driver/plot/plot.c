/* plot.c -- mpc plot: reads the logs, names and smooths them, writes the page and the picture. */
#include "plot/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "gpt2" of "runs/gpt2.jsonl" */
static const char *name_of(Arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    return dot && dot > base ? arena_text(arena, "%.*s", (int)(dot - base), base) : base;
}

static void name_runs(Plot *plot)
{
    for (int i = 0; i < plot->nruns; i++)
        plot->runs[i].name = name_of(&plot->run->arena, plot->runs[i].path);
    for (int i = 0; i < plot->nruns; i++)
        for (int j = 0; j < plot->nruns; j++)
            if (i != j && strcmp(name_of(&plot->run->arena, plot->runs[j].path), plot->runs[i].name) == 0) {
                plot->runs[i].name = plot->runs[i].path;
                break;
            }
}

static const char *title_of(const Plot *plot)
{
    const char *text = "Training of ";
    for (int i = 0; i < plot->nruns; i++)
        text = arena_text(&plot->run->arena, "%s%s%s", text,
                          i == 0                ? ""
                          : i < plot->nruns - 1 ? ", "
                                                : " and ",
                          plot->runs[i].name);
    return text;
}

/* By default a curve has about 50 independent points. */
static double window_of(const Plot *plot)
{
    enum { POINTS = 50 };
    double longest = 0;
    for (const PlotRun *log = plot->runs; log < plot->runs + plot->nruns; log++)
        longest = fmax(longest, log->step[log->count - 1] - log->step[0] + 1);
    const char *given = plot->run->options->smooth;
    return given ? strtod(given, NULL) : fmax(1, floor(longest / POINTS));
}

/* No output may replace a log. */
static bool read_logs(Plot *plot)
{
    Run *run = plot->run;
    const Options *o = run->options;
    for (int i = 0; i < plot->nruns; i++) {
        const char *path = i == 0 ? o->operand : o->files.at[i - 1];
        if (!read_log(run, &plot->runs[i], path))
            return false;
        if (stat(path, &run->input) == 0 &&
            ((o->output && !may_write(run, o->output)) || (o->svg && !may_write(run, o->svg))))
            return false;
    }
    return true;
}

static bool write_file(const Plot *plot, const char *path, void (*write)(const Plot *, FILE *))
{
    NewFile file;
    if (!open_new(plot->run, &file, path))
        return false;
    write(plot, file.out);
    return close_new(plot->run, &file);
}

int run_plot(Run *run)
{
    const Options *o = run->options;
    Plot plot = { .run = run, .nruns = 1 + o->files.count };
    plot.runs = NEW_ARRAY(&run->arena, PlotRun, plot.nruns);
    if (!read_logs(&plot))
        return STATUS_FAILED;
    name_runs(&plot);
    plot.title = o->title ? o->title : title_of(&plot);
    plot.window = window_of(&plot);
    for (int i = 0; i < plot.nruns; i++)
        smooth_log(&run->arena, &plot.runs[i], plot.window);
    for (int i = 0; i < plot.nruns && o->tensorboard; i++)
        if (!write_events(run, &plot.runs[i], o->tensorboard))
            return STATUS_FAILED;
    if (o->svg && !is_drawn(&plot, PLOT_LOSS))
        return run_failed(run, "--svg has no effect: no step of the logs has a loss"), STATUS_FAILED;
    if (o->svg && !write_file(&plot, o->svg, write_loss_picture))
        return STATUS_FAILED;
    const bool has_page = o->output || (!o->tensorboard && !o->svg);
    return !has_page || write_file(&plot, o->output ? o->output : "-", write_plot) ? STATUS_OK : STATUS_FAILED;
}
