/* plot_scale.c -- from numbers to places: ranges, ticks and their text. */
#include "plot/plot.h"
#include "timeline.h"

#include <math.h>
#include <stdlib.h>

/* --- Ranges --------------------------------------------------------------------------------------- */

int smaller_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void widen(PlotScale *scale, double number)
{
    if (!isfinite(number) || (scale->is_log && number <= 0))
        return;
    scale->low = fmin(scale->low, number);
    scale->high = fmax(scale->high, number);
}

/* With an even scale, without the first steps and the most extreme ones: beside the fall from the start, or a spike,
 * all else would be a flat line.  The chart says how many steps lie outside. */
static void widen_to_run(Arena *arena, PlotScale *scale, const PlotRun *log, PlotColumn column)
{
    enum { MANY = 100, BEGINNING = 50, EXTREME = 200 };
    const bool cuts = !scale->is_log && log->count >= MANY && column != PLOT_LR;
    double *sorted = NEW_ARRAY(arena, double, log->count);
    int count = 0;
    for (int i = cuts ? log->count / BEGINNING : 0; i < log->count; i++) {
        if (isfinite(log->value[column][i]) && (!scale->is_log || log->value[column][i] > 0))
            sorted[count++] = log->value[column][i];
        if (column == PLOT_LOSS)
            widen(scale, log->value[PLOT_EVAL][i]);
    }
    qsort(sorted, (size_t)count, sizeof *sorted, smaller_first);
    const int cut = cuts ? count / EXTREME : 0;
    if (count > 0) {
        widen(scale, sorted[cut]);
        widen(scale, sorted[count - 1 - cut]);
    }
}

PlotScale scale_of(const Plot *plot, PlotColumn column, bool is_log)
{
    PlotScale scale = { .is_log = is_log, .low = INFINITY, .high = -INFINITY };
    const bool is_steps = column == PLOT_COLUMNS;
    for (const PlotRun *log = plot->runs; log < plot->runs + plot->nruns; log++) {
        if (!is_steps) {
            widen_to_run(&plot->run->arena, &scale, log, column);
        } else {
            widen(&scale, log->step[0]);
            widen(&scale, log->step[log->count - 1]);
        }
    }
    if (scale.low > scale.high) /* no numbers */
        scale = (PlotScale){ is_log, 1, 10 };
    if (!is_log && (is_steps || column == PLOT_RATE || column == PLOT_LR))
        scale.low = fmin(scale.low, 0);
    const double margin = is_steps ? 0 : 0.05;
    if (is_log) {
        const double ratio = fmax(pow(scale.high / scale.low, margin), scale.high > scale.low ? 1 : 1.1);
        return (PlotScale){ true, scale.low / (is_steps ? 1 : ratio), scale.high * ratio };
    }
    double more = margin * (scale.high - scale.low);
    if (scale.high <= scale.low)
        more = fmax(0.1 * fabs(scale.high), 1e-12);
    return (PlotScale){ false, scale.low == 0 ? 0 : scale.low - (is_steps ? 0 : more), scale.high + more };
}

double plot_place(const PlotScale *scale, double number)
{
    if (!isfinite(number) || (scale->is_log && number <= 0))
        return NAN;
    return scale->is_log ? log(number / scale->low) / log(scale->high / scale->low)
                         : (number - scale->low) / (scale->high - scale->low);
}

/* --- Ticks ---------------------------------------------------------------------------------------- */

static int even_ticks(const PlotScale *scale, int most, double *ticks, int room)
{
    const double step = tick_step(scale->high - scale->low, most);
    int count = 0;
    for (double i = ceil(scale->low / step - 1e-9); i * step <= scale->high * (1 + 1e-12) && count < room; i++)
        ticks[count++] = i * step + 0.0; /* not -0 */
    return count;
}

/* Powers of ten, every second or third of them where there are many; with 2 and 5 times them where there are few. */
int ticks_of(const PlotScale *scale, int most, double *ticks, int room)
{
    const double decades = scale->is_log ? log10(scale->high / scale->low) : 0;
    if (decades < 1)
        return even_ticks(scale, most, ticks, room);
    const int every = decades < most ? 1 : (int)ceil(decades / most);
    int count = 0;
    for (int power = (int)floor(log10(scale->low)); power <= log10(scale->high) + 1e-9; power++)
        for (int i = 0; i < 3 && count < room; i++) {
            const double tick = pow(10, power) * (i == 0 ? 1 : i == 1 ? 2 : 5);
            const bool is_drawn = i == 0 ? power % every == 0 : 3 * decades <= most;
            if (is_drawn && tick >= scale->low * (1 - 1e-9) && tick <= scale->high * (1 + 1e-9))
                ticks[count++] = tick;
        }
    return count;
}

const char *tick_text(Arena *arena, double number)
{
    static const struct {
        double unit;
        const char *letter;
    } units[] = { { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } };
    for (int i = 0; i < 3; i++)
        if (fabs(number) >= (i == 2 ? 1e4 : units[i].unit))
            return arena_text(arena, "%.4g%s", number / units[i].unit, units[i].letter);
    if (fabs(number) >= 1e-2 || number == 0)
        return arena_text(arena, "%.4g", number);
    const double power = floor(log10(fabs(number)) + 1e-9);
    return arena_text(arena, "%.3ge%.0f", number / pow(10, power), power);
}
