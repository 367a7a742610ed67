/* trace_file.c -- reads the trace of a rank line by line.  Whatever does not have the form that a trainer writes is
 * refused, with its line. */
#include "trace.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* `mpc: error: FILE:LINE: ...`; false. */
static bool trace_failed(Run *run, const TraceFile *file, const char *reason)
{
    return run_failed(run, "%s:%lld: %s", file->path, (long long)file->line, reason);
}

/* A file that is being read. */
typedef struct {
    TraceFile *file;
    FILE *in;
    char *text; /* of the last line, without its end */
    size_t room;
} Reader;

static bool next_line(Reader *reader)
{
    const size_t length = next_text_line(reader->in, &reader->text, &reader->room);
    if (length == 0)
        return false;
    reader->file->line++;
    if (reader->text[length - 1] == '\n')
        reader->text[length - 1] = '\0';
    return true;
}

static bool open_reader(Run *run, Reader *reader, TraceFile *file)
{
    *reader = (Reader){ .file = file, .in = fopen(file->path, "rb") };
    file->line = 0;
    if (!reader->in)
        return run_failed(run, "cannot read %s: %s", file->path, strerror(errno));
    return true;
}

static void close_reader(Reader *reader)
{
    fclose(reader->in);
    free(reader->text);
}

static const char *text_in(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

/* A number that must be whole, from 0 to `most`. */
static bool read_count(const cJSON *object, const char *key, double most, int64_t *count)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    const double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
    const bool good = number >= 0 && number <= most;
    *count = good ? (int64_t)number : 0;
    return good && (double)*count == number;
}

/* --- The first line ------------------------------------------------------------------------- */

static bool read_facts(Run *run, TraceFile *file, const cJSON *facts)
{
    const char *format = text_in(facts, "format"), *id = text_in(facts, "run"), *model = text_in(facts, "model");
    int64_t rank, ranks;
    if (format && strcmp(format, "mpc trace 1, merged") == 0)
        return trace_failed(run, file, "this trace has been merged: give the files of the ranks");
    if (!format || strcmp(format, "mpc trace 1") != 0 || !id || !model || !read_count(facts, "ranks", 1e6, &ranks) ||
        !read_count(facts, "rank", (double)ranks - 1, &rank))
        return trace_failed(run, file,
                            "this is no trace of this version of mpc: give files that OUT/trainer --trace "
                            "has written");
    file->run = arena_text(&run->arena, "%s", id);
    file->model = arena_text(&run->arena, "%s", model);
    file->rank = (int)rank;
    file->ranks = (int)ranks;
    return true;
}

/* `{..., "traceEvents": [` is JSON with what closes it. */
bool read_trace_head(Run *run, TraceFile *file, const char *path)
{
    Reader reader;
    *file = (TraceFile){ .path = path };
    if (!open_reader(run, &reader, file))
        return false;
    if (fstat(fileno(reader.in), &file->status) != 0)
        file->status = (struct stat){ 0 };
    const char *text = next_line(&reader) ? reader.text : "";
    cJSON *head = cJSON_ParseWithOpts(arena_text(&run->arena, "%.4096s]}", text), NULL, true);
    bool good = ferror(reader.in) ? run_failed(run, "cannot read %s: %s", path, strerror(errno))
                                  : read_facts(run, file, cJSON_GetObjectItemCaseSensitive(head, "otherData"));
    cJSON_Delete(head);
    close_reader(&reader);
    return good;
}

/* --- Events --------------------------------------------------------------------------------- */

static void add_message(TraceMessages *messages, TraceMessage message)
{
    if (messages->count == messages->room) {
        messages->room = messages->room ? 2 * messages->room : 1024;
        messages->at = realloc(messages->at, (size_t)messages->room * sizeof *messages->at);
        if (!messages->at)
            out_of_memory((size_t)messages->room * sizeof *messages->at);
    }
    message.order = messages->count;
    messages->at[messages->count++] = message;
}

static bool read_message(const TraceFile *file, const cJSON *event, TraceMessages *messages)
{
    const cJSON *said = cJSON_GetObjectItemCaseSensitive(event, "args");
    const double begin = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(event, "ts"));
    const double length = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(event, "dur"));
    int64_t step, collective, from, to, row;
    bool good = read_count(said, "step", 1e15, &step) && read_count(said, "collective", 1e9, &collective) &&
                read_count(said, "from", file->ranks - 1, &from) && read_count(said, "to", file->ranks - 1, &to) &&
                read_count(event, "tid", 1e6, &row) && from != to && (from == file->rank || to == file->rank);
    if (good)
        add_message(messages, (TraceMessage){ .step = step,
                                              .collective = collective,
                                              .from = (int)from,
                                              .to = (int)to,
                                              .sends = from == file->rank,
                                              .begin = begin,
                                              .end = begin + length,
                                              .row = (int)row });
    return good;
}

/* A complete event, with times, or metadata; of this rank. */
static bool is_event(const TraceFile *file, const cJSON *event)
{
    const char *phase = text_in(event, "ph");
    const cJSON *begin = cJSON_GetObjectItemCaseSensitive(event, "ts");
    const cJSON *length = cJSON_GetObjectItemCaseSensitive(event, "dur");
    int64_t rank;
    return phase && text_in(event, "name") && text_in(event, "cat") && read_count(event, "pid", 1e6, &rank) &&
           rank == file->rank &&
           (strcmp(phase, "M") == 0 ||
            (strcmp(phase, "X") == 0 && cJSON_IsNumber(begin) && cJSON_IsNumber(length) && length->valuedouble >= 0));
}

static bool check_event(const TraceFile *file, const char *text, TraceMessages *messages)
{
    cJSON *event = cJSON_ParseWithOpts(text, NULL, true);
    bool good = is_event(file, event);
    if (good && strcmp(text_in(event, "cat"), "message") == 0)
        good = read_message(file, event, messages);
    cJSON_Delete(event);
    return good;
}

/* Each line but the last ends with a comma. */
static bool copy_from(Run *run, Reader *reader, bool is_first, FILE *out, TraceMessages *messages)
{
    TraceFile *file = reader->file;
    bool more = next_line(reader); /* what read_trace_head has read */
    while (more && next_line(reader)) {
        const size_t length = strlen(reader->text);
        more = length > 0 && reader->text[length - 1] == ',';
        if (more)
            reader->text[length - 1] = '\0';
        if (!check_event(file, reader->text, messages))
            return trace_failed(run, file, "this is no event of a trace of mpc: the file has been changed");
        fprintf(out, "%s%s", is_first ? "" : ",\n", reader->text);
        is_first = false;
    }
    if (more || !next_line(reader))
        return trace_failed(run, file, "the file ends too early: has it been copied as a whole?");
    return (strcmp(reader->text, "]}") == 0 && !next_line(reader)) ||
           trace_failed(run, file, "unexpected text after the end of the trace, ]}: the file was modified");
}

bool copy_events(Run *run, TraceFile *file, bool is_first, FILE *out, TraceMessages *messages)
{
    Reader reader;
    if (!open_reader(run, &reader, file))
        return false;
    bool good = copy_from(run, &reader, is_first, out, messages);
    close_reader(&reader);
    return good;
}
