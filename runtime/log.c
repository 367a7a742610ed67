/* log.c -- the file of --log: one JSON object a line, one line a step. */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <sys/stat.h>
#include <unistd.h>

static _Noreturn void refuse(const char *path)
{
    rt_fail("--log %s: cannot write it: %s; make room or give another place (the last checkpoint is intact)", path,
            strerror(errno));
}

/* Bytes of the first lines of the file: those of the steps up to `step`. */
static off_t bytes_up_to(const char *path, int64_t step)
{
    FILE *file = step > 0 ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n'; kept += length) {
        cJSON *json = cJSON_Parse(line);
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(json, "step");
        bool later = !cJSON_IsNumber(number) || number->valuedouble > (double)step;
        cJSON_Delete(json);
        if (later)
            break;
    }
    free(line);
    fclose(file);
    return kept;
}

static void write_text(const RtLog *log, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        ssize_t wrote = write(log->file, text, left);
        if (wrote < 0 && errno != EINTR)
            refuse(log->path);
        if (wrote > 0) {
            text += wrote;
            left -= (size_t)wrote;
        }
    }
}

RtLog rt_log_open(const char *path, int64_t step)
{
    RtLog log = { .path = path };
    if (!path)
        return log;
    off_t kept = bytes_up_to(path, step);
    log.file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    struct stat info;
    if (log.file < 0 || fstat(log.file, &info))
        refuse(path);
    write_text(&log, " "); /* before a JSON object it means nothing; and a regular file loses it at once */
    if (S_ISREG(info.st_mode) && ftruncate(log.file, kept))
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

void rt_log_step(const RtLog *log, const RtStepReport *report)
{
    if (!log->path)
        return;
    char *line = rt_text("{");
    add(&line, "step", (double)report->step, "%.0f");
    add(&line, "loss", report->loss, "%.9g"); /* nine digits give back the same f32 */
    add(&line, "grad_norm", report->grad_norm, "%.9g");
    add(&line, "lr", report->lr, "%.9g");
    add(&line, "tokens_per_s", report->tokens_per_s, "%.1f");
    add(&line, "step_ms", 1e3 * report->seconds, "%.3f");
    add(&line, "mfu", report->mfu, "%.4f");
    add(&line, "peak_bytes", (double)report->bytes, "%.0f");
    if (report->ranks > 1) {
        add(&line, "sent_bytes", (double)report->traffic.sent_bytes, "%.0f");
        add(&line, "comm_ms", 1e3 * report->traffic.seconds, "%.3f");
        add(&line, "comm_wait_ms", 1e3 * report->traffic.waited, "%.3f");
    }
    if (!isnan(report->loss_scale))
        add(&line, "loss_scale", report->loss_scale, "%.9g");
    if (!isnan(report->eval_loss))
        add(&line, "eval_loss", report->eval_loss, "%.9g");
    char *whole = rt_text("%s}\n", line);
    write_text(log, whole); /* in one piece, so that whoever follows the file sees whole lines */
    free(whole);
    free(line);
}

void rt_log_close(const RtLog *log)
{
    if (log->path && close(log->file))
        refuse(log->path);
}
