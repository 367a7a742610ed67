/* log.c -- the file of --log: one JSON object per line, one line per step. */
#include "log.h"

#include "outputs.h"
#include "store/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <sys/stat.h>
#include <unistd.h>

static char *failure_text(const char *path)
{
    const char *remedy = errno == ENXIO ? "start what reads this pipe first"
                         : errno == ENOSPC || errno == EFBIG || errno == EDQUOT
                             ? "free some space or give another path"
                             : "give a path in an existing, writable directory";
    return rt_text("--log %s: cannot write it: %s; %s", path, strerror(errno), remedy);
}

static _Noreturn void refuse(const char *path) { rt_fail("%s", failure_text(path)); }

/* The step of a line; -1: not a log line. */
static double step_of(const char *line)
{
    cJSON *json = cJSON_Parse(line);
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(json, "step");
    double step = cJSON_IsNumber(number) ? number->valuedouble : -1;
    cJSON_Delete(json);
    return step;
}

typedef struct {
    off_t kept;   /* bytes of the lines of steps up to that one */
    int64_t line; /* number of the first line, from 1, that is not a log line and not the last; 0: none */
    double last;  /* the step of the last line */
} Look;

static Look look_at(FILE *file, int64_t step)
{
    Look look = { 0 };
    char *line = NULL;
    size_t room = 0;
    bool keeps = step > 0;
    for (int64_t number = 1; getline(&line, &room, file) > 0; number++) {
        double of = step_of(line);
        if (of < 0 && (number == 1 || getline(&line, &room, file) > 0)) { /* a crash may leave half a line at the end */
            look.line = number;
            break;
        }
        look.last = of >= 0 ? of : look.last;
        keeps = keeps && of >= 0 && of <= (double)step && strchr(line, '\n');
        look.kept = keeps ? ftello(file) : look.kept;
    }
    free(line);
    return look;
}

/* Has it no steps beyond `step`? */
static bool ends_by(const char *path, int64_t step)
{
    FILE *file = fopen(path, "r");
    const Look look = file ? look_at(file, step) : (Look){ 0 };
    if (file)
        fclose(file);
    return !look.line && look.last <= (double)step;
}

/* The number of bytes of the file to keep. */
static off_t bytes_kept(const char *path, int64_t step, int64_t unsaved, bool overwrite)
{
    if (step == 0 && !overwrite && !(unsaved && ends_by(path, unsaved)))
        rt_outputs_keep(path, "--log", "this run begins at step 0: give another name");
    FILE *file = step > 0 ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    Look look = look_at(file, step);
    fclose(file);
    if (look.line && !overwrite)
        rt_fail("--log %s: line %lld is not from a trainer's log and would be lost; give another name, or --overwrite",
                path, (long long)look.line);
    return look.kept;
}

static bool write_text(const RtLog *log, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        ssize_t wrote = write(log->file, text, left);
        if (wrote < 0 && errno != EINTR)
            return false;
        if (wrote > 0) {
            text += wrote;
            left -= (size_t)wrote;
        }
    }
    return true;
}

RtLog rt_log_open(const char *path, int64_t step, int64_t unsaved, bool overwrite)
{
    RtLog log = { .path = path };
    if (!path)
        return log;
    log.file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666); /* fails without a reader */
    struct stat info;
    if (log.file < 0 || fstat(log.file, &info) || fcntl(log.file, F_SETFL, O_APPEND) < 0)
        refuse(path);
    bool is_regular = S_ISREG(info.st_mode);
    if (is_regular)
        rt_lock_file(log.file, path, "--log");
    off_t kept = is_regular ? bytes_kept(path, step, unsaved, overwrite) : 0;
    if (!write_text(&log, " ")) /* ignored before a JSON object; removed from a regular file at once */
        refuse(path);
    if (is_regular && ftruncate(log.file, kept))
        refuse(path);
    return log;
}

/* JSON has no NaN and no infinity. */
static void add(char **line, const char *name, double value, const char *format)
{
    char *number = isfinite(value) ? rt_text(format, value) : rt_text("null");
    rt_append(line, "%s\"%s\": %s", (*line)[1] ? ", " : "", name, number);
    free(number);
}

static void add_memory(char **line, const RtStepReport *report)
{
    for (int rank = 0; rank < report->ranks && report->rank_bytes; rank++)
        rt_append(line, "%s%lld", rank ? ", " : ", \"rank_bytes\": [", (long long)report->rank_bytes[rank]);
    if (report->rank_bytes)
        rt_append(line, "]");
}

static void add_times(char **line, const double *seconds, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        rt_append(line, "%s%.3f", rank ? ", " : "", 1e3 * seconds[rank]);
}

static void add_pace(char **line, const RtPace *pace)
{
    if (!pace->ranks)
        return;
    rt_append(line, ", \"rank_wait_ms\": [");
    add_times(line, pace->waited, pace->ranks);
    rt_append(line, "], \"rank_late_ms\": [");
    add_times(line, pace->late, pace->ranks);
    rt_append(line, "]");
}

static void add_layers(char **line, const char *name, RtLayers layers)
{
    for (int i = 0; i < layers.count; i++) {
        char *number = isfinite(layers.at[i]) ? rt_text("%.6g", (double)layers.at[i]) : rt_text("null");
        if (i == 0)
            rt_append(line, ", \"%s\": [", name);
        rt_append(line, "%s%s", i ? ", " : "", number);
        free(number);
    }
    if (layers.count)
        rt_append(line, "]");
}

static void add_labels(char **line, const char *name, RtLabels labels)
{
    for (int i = 0; i < labels.count; i++) {
        if (i == 0)
            rt_append(line, ", \"%s\": [", name);
        rt_append(line, "%s%.10g", i ? ", " : "", labels.at[i]);
    }
    if (labels.count)
        rt_append(line, "]");
}

void rt_log_step(RtLog *log, const RtStepReport *report)
{
    if (!log->path || log->failure)
        return;
    char *line = rt_text("{");
    add(&line, "step", (double)report->step, "%.0f");
    add(&line, "loss", report->loss, "%.9g"); /* nine digits restore the same f32 */
    add(&line, "grad_norm", report->grad_norm, "%.9g");
    add(&line, "lr", report->lr, "%.9g");
    add(&line, report->takes_records ? "records_per_s" : "tokens_per_s", report->tokens_per_s, "%.1f");
    add(&line, "step_ms", 1e3 * report->seconds, "%.3f");
    add(&line, "mfu", report->mfu, "%.4f");
    add(&line, "peak_bytes", (double)report->bytes, "%.0f");
    add_memory(&line, report);
    if (report->ranks > 1) {
        add(&line, "sent_bytes", (double)report->traffic.sent_bytes, "%.0f");
        add(&line, "comm_ms", 1e3 * report->traffic.seconds, "%.3f");
        add(&line, "comm_wait_ms", 1e3 * report->traffic.waited, "%.3f");
        add_pace(&line, report->pace);
    }
    if (report->far.moved >= 0) {
        add(&line, "offload_bytes", (double)report->far.moved, "%.0f");
        add(&line, "offload_wait_ms", 1e3 * report->far.waited, "%.3f");
    }
    if (report->runs >= 0)
        add(&line, "runs", report->runs, "%.0f");
    if (!isnan(report->save_s)) {
        add(&line, "save_ms", 1e3 * report->save_s, "%.3f");
        add(&line, "save_wait_ms", 1e3 * report->save_waited_s, "%.3f");
    }
    add_layers(&line, "expert_load", report->expert_load);
    add_layers(&line, "dropped", report->dropped);
    if (!isnan(report->loss_scale))
        add(&line, "loss_scale", report->loss_scale, "%.9g");
    if (report->skipped_steps >= 0)
        add(&line, "skipped_steps", (double)report->skipped_steps, "%.0f");
    add_labels(&line, "labels", report->labels);
    if (report->evaluation.is_whole) {
        add(&line, "eval_loss", report->evaluation.loss, "%.9g");
        add_labels(&line, "eval_labels", report->evaluation.labels);
    }
    char *whole = rt_text("%s}\n", line);
    if (!write_text(log, whole)) /* in one write, so that readers of the growing file see whole lines */
        log->failure = failure_text(log->path);
    free(whole);
    free(line);
}

void rt_log_close(RtLog *log)
{
    if (log->path && close(log->file) && !log->failure)
        refuse(log->path);
    free(log->failure);
}
