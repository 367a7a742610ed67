/* plot.h -- mpc plot: curves of the logs that OUT/trainer --log has written.
 *
 *   plot.c        the command
 *   plot_log.c    reads logs; means over neighbouring steps
 *   plot_scale.c  from numbers to places: ranges, ticks, their text
 *   plot_svg.c    one chart, in the page or by itself
 *   plot_page.c   the page around the charts
 *   plot_ranks.c  the table of ranks
 *   plot_events.c TensorBoard's files
 *
 * Style sheets and the script of the page are in driver/page. */
#ifndef MPC_PLOT_H
#define MPC_PLOT_H

#include "driver.h"

#include <cjson/cJSON.h>

/* What a step of a log says.  Those before PLOT_CHARTS are charts of their own. */
typedef enum {
    PLOT_LOSS,
    PLOT_NORM,
    PLOT_RATE,
    PLOT_LR,
    PLOT_LOAD,
    PLOT_DROPPED,
    PLOT_CHARTS,
    PLOT_EVAL = PLOT_CHARTS,
    PLOT_MS,
    PLOT_SKIPPED,
    PLOT_COLUMNS
} PlotColumn;

/* What a step says of each rank: how long it waited, and made others wait. */
typedef enum { PLOT_WAITED, PLOT_LATE, PLOT_RANK_TIMES } PlotRankTime;

typedef struct {
    const char *path, *name; /* in legends: the file's name, or its path where two have one name */
    bool counts_records;     /* else tokens */
    int count, room;
    double *step;                /* increasing */
    double *value[PLOT_COLUMNS]; /* by step; NaN: the log has none */
    double *smooth[PLOT_CHARTS];
    int nranks; /* 0: the log does not say how long ranks wait */
    int steps_with_ranks;
    double *rank_ms[PLOT_RANK_TIMES]; /* by rank: of all steps together */
} PlotRun;

typedef struct {
    Run *run;
    const char *title;
    int nruns;
    PlotRun *runs;
    double window; /* steps that a point of a smooth curve is the mean of; 1: none is drawn */
} Plot;

/* False after an error. */
bool read_log(Run *run, PlotRun *log, const char *path);

/* Fills in `smooth`: the mean over the steps at most (window - 1) / 2 away; near the start, where curves are steep,
 * over as many behind as there are before; near the end, over those that there are. */
void smooth_log(Arena *arena, PlotRun *log, double window);

/* --- Scales --------------------------------------------------------------------------------------- */

typedef struct {
    bool is_log;
    double low, high; /* the range of numbers that is drawn */
} PlotScale;

int smaller_first(const void *a, const void *b); /* of doubles, for qsort */

/* For all numbers of these charts, in all runs; of an axis of steps, PLOT_COLUMNS. */
PlotScale scale_of(const Plot *plot, PlotColumn column, bool is_log);

/* The place of a number: 0 at the low end, 1 at the high end; NaN if it has none. */
double plot_place(const PlotScale *scale, double number);

/* The numbers of ticks: at most `room`. */
int ticks_of(const PlotScale *scale, int most, double *ticks, int room);
const char *tick_text(Arena *arena, double number); /* "20k", "3e-4" */

/* --- Writers -------------------------------------------------------------------------------------- */

bool is_drawn(const Plot *plot, PlotColumn column); /* has a number */
void write_chart(const Plot *plot, PlotColumn column, FILE *out);
void write_loss_picture(const Plot *plot, FILE *out); /* for other pages, in light and dark colours; even axes */
void take_ranks(Arena *arena, PlotRun *log, const cJSON *line); /* adds what a line of the log says of them */
void write_ranks(const Plot *plot, FILE *out);
void write_plot(const Plot *plot, FILE *out);
bool write_events(Run *run, const PlotRun *log, const char *folder); /* FOLDER/NAME; false after an error */

/* A page of charts, up to its heading, and its end; `more`: rules of its own, or NULL. */
void write_page_head(const char *title, const char *const *more, FILE *out);
void write_page_end(const char *const *script, FILE *out);

/* The number of colours; runs beyond them are dashed. */
enum { PLOT_COLOURS = 8 };

#endif
