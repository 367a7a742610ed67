/* plot_log.c -- reads logs: a line of JSON for each step, as docs/trainer.md says. */
#include "plot/plot.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const fields[PLOT_COLUMNS] = {
    [PLOT_LOSS] = "loss",
    [PLOT_NORM] = "grad_norm",
    [PLOT_RATE] = "tokens_per_s",
    [PLOT_LR] = "lr",
    [PLOT_EVAL] = "eval_loss",
    [PLOT_MS] = "step_ms",
    [PLOT_SKIPPED] = "skipped_steps",
    [PLOT_LOAD] = "expert_load",
    [PLOT_DROPPED] = "dropped",
};

/* A trainer's numbers are f32: what is larger is none that can be drawn. */
static double number_of(const cJSON *item)
{
    return cJSON_IsNumber(item) && fabs(item->valuedouble) <= FLT_MAX ? item->valuedouble : NAN;
}

/* NaN where there is none, or null: not a finite number.  Of a list with a number for each layer, the largest. */
static double number_in(const cJSON *json, const char *field)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, field), *layer;
    double largest = NAN;
    cJSON_ArrayForEach(layer, item) largest = fmax(largest, number_of(layer));
    return cJSON_IsNumber(item) ? number_of(item) : largest;
}

/* A number, null, or a list of them? */
static bool is_numeric(const cJSON *item, bool may_be_list)
{
    const cJSON *layer;
    bool good = cJSON_IsNumber(item) || cJSON_IsNull(item) || (may_be_list && cJSON_IsArray(item));
    if (cJSON_IsArray(item))
        cJSON_ArrayForEach(layer, item) good = good && is_numeric(layer, false);
    return good;
}

static bool is_step_line(const cJSON *json)
{
    const double most = 9007199254740992, step = number_in(json, "step"); /* 2^53 */
    bool good = step >= 0 && step <= most && step == floor(step);
    for (int column = 0; column < PLOT_COLUMNS; column++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, fields[column]);
        good = good && (!item || is_numeric(item, true));
    }
    return good;
}

static void make_room(Arena *arena, PlotRun *log)
{
    for (int column = 0; column < PLOT_COLUMNS; column++) {
        int room = log->room; /* of all columns */
        GROW(arena, log->value[column], log->count, room);
    }
    GROW(arena, log->step, log->count, log->room);
}

static bool refuse(Run *run, const PlotRun *log, int64_t line, const char *why)
{
    return run_failed(run, "%s:%lld: %s: give the file that a trainer's --log has written", log->path, (long long)line,
                      why);
}

static bool take_line(Run *run, PlotRun *log, const char *text, size_t length, int64_t line)
{
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, length, &end, false);
    const double step = number_in(json, "step");
    const bool is_whole = json && end + strspn(end, " \r\n") == text + length && strlen(text) == length;
    const bool is_step = is_whole && is_step_line(json), follows = log->count == 0 || step > log->step[log->count - 1];
    if (is_step && follows) {
        make_room(&run->arena, log);
        const int i = log->count++;
        log->step[i] = step;
        for (int column = 0; column < PLOT_COLUMNS; column++)
            log->value[column][i] = number_in(json, fields[column]);
        take_ranks(&run->arena, log, json);
        const double records = number_in(json, "records_per_s");
        log->counts_records |= !isnan(records);
        if (!isnan(records))
            log->value[PLOT_RATE][i] = records;
    }
    cJSON_Delete(json);
    if (!is_step)
        return refuse(run, log, line, "this is not a step of a log");
    return follows || refuse(run, log, line, "this step is not after the one of the line before");
}

/* From the number of steps skipped so far to whether this one is. */
static void find_skips(PlotRun *log)
{
    double *skipped = log->value[PLOT_SKIPPED], before = skipped[0];
    for (int i = 0; i < log->count; i++) {
        const double now = skipped[i];
        skipped[i] = now - before;
        before = now;
    }
}

bool read_log(Run *run, PlotRun *log, const char *path)
{
    *log = (PlotRun){ .path = path };
    FILE *in = fopen(path, "rb");
    if (!in)
        return run_failed(run, "cannot read %s: %s", path, strerror(errno));
    char *text = NULL;
    size_t room = 0;
    bool good = true;
    size_t length;
    for (int64_t line = 1; good && (length = next_text_line(in, &text, &room)) > 0; line++)
        if (line == 1 || text[length - 1] == '\n' ||
            length == LONGEST_LINE) /* of a run that goes on, or was killed, the last may be half */
            good = take_line(run, log, text, length, line);
    if (good && ferror(in))
        good = run_failed(run, "cannot read %s: %s", path, strerror(errno));
    free(text);
    fclose(in);
    if (good && log->count == 0)
        good = run_failed(run, "%s: the log is empty: it has no step yet", path);
    if (good)
        find_skips(log);
    return good;
}

/* As the window moves on, neither of its ends moves back.  sum[i], n[i]: of the first i steps that have a number.  The
 * norm of a skipped step is none of the curve. */
static void smooth_column(PlotRun *log, PlotColumn column, double window, double *sum, double *n)
{
    const double *value = log->value[column], *step = log->step;
    const int last = log->count - 1;
    for (int i = 0; i < log->count; i++) {
        const bool counts = isfinite(value[i]) && !(column == PLOT_NORM && log->value[PLOT_SKIPPED][i] > 0);
        sum[i + 1] = sum[i] + (counts ? value[i] : 0);
        n[i + 1] = n[i] + counts;
    }
    for (int i = 0, from = 0, to = 0; i < log->count; i++) {
        const double half = (window - 1) / 2, near = fmin(half, step[i] - step[0]);
        while (step[i] - step[from] > half)
            from++;
        for (to = to > i ? to : i; to < last && step[to + 1] - step[i] <= near;)
            to++;
        log->smooth[column][i] = (sum[to + 1] - sum[from]) / (n[to + 1] - n[from]);
    }
}

void smooth_log(Arena *arena, PlotRun *log, double window)
{
    double *sum = NEW_ARRAY(arena, double, log->count + 1), *n = NEW_ARRAY(arena, double, log->count + 1);
    for (PlotColumn column = 0; column < PLOT_CHARTS; column++) {
        log->smooth[column] = log->value[column];
        if (window <= 1 || column == PLOT_LR)
            continue;
        log->smooth[column] = NEW_ARRAY(arena, double, log->count);
        smooth_column(log, column, window, sum, n);
    }
}
