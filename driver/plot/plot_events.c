/* plot_events.c -- mpc plot --tensorboard: the numbers of a log as an event file of TensorBoard.
 *
 * A file is records: u64 length, masked CRC of that, the bytes, masked CRC of those; all little-endian.  The bytes are
 * an Event in the wire format of protocol buffers:
 *
 *   Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
 *   Summary { repeated Value value = 1; }
 *   Value   { string tag = 1; float simple_value = 2; } */
#include "plot/plot.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- Records -------------------------------------------------------------------------------------- */

typedef struct {
    unsigned char *at;
    size_t count, room;
} Bytes;

static void add_bytes(Bytes *bytes, const void *from, size_t count)
{
    if (bytes->count + count > bytes->room) {
        bytes->room = 2 * (bytes->count + count);
        unsigned char *grown = realloc(bytes->at, bytes->room);
        if (!grown)
            abort();
        bytes->at = grown;
    }
    if (count)
        memcpy(bytes->at + bytes->count, from, count);
    bytes->count += count;
}

/* CRC-32C: the polynomial of Castagnoli, reflected. */
static uint32_t crc_of(const unsigned char *at, size_t count)
{
    uint32_t crc = ~(uint32_t)0;
    for (size_t i = 0; i < count; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

/* A CRC of bytes that hold CRCs tells less, so those in the file are masked. */
static void write_crc(const void *at, size_t count, FILE *out)
{
    const uint32_t crc = crc_of(at, count), masked = (crc >> 15 | crc << 17) + 0xA282EAD8u;
    fwrite(&masked, sizeof masked, 1, out);
}

static void write_record(const Bytes *bytes, FILE *out)
{
    const uint64_t length = bytes->count;
    fwrite(&length, sizeof length, 1, out);
    write_crc(&length, sizeof length, out);
    fwrite(bytes->at, 1, bytes->count, out);
    write_crc(bytes->at, bytes->count, out);
}

/* --- Fields --------------------------------------------------------------------------------------- */

typedef enum { VARINT = 0, DOUBLE = 1, TEXT_OR_MESSAGE = 2, FLOAT = 5 } Wire;

static void add_varint(Bytes *bytes, uint64_t number)
{
    do {
        const unsigned char byte = (unsigned char)((number & 0x7F) | (number > 0x7F ? 0x80 : 0));
        add_bytes(bytes, &byte, 1);
    } while (number >>= 7);
}

static void add_key(Bytes *bytes, int field, Wire wire) { add_varint(bytes, (uint64_t)field << 3 | wire); }

static void add_text(Bytes *bytes, int field, const void *text, size_t length)
{
    add_key(bytes, field, TEXT_OR_MESSAGE);
    add_varint(bytes, length);
    add_bytes(bytes, text, length);
}

static void add_time(Bytes *event, double seconds)
{
    add_key(event, 1, DOUBLE);
    add_bytes(event, &seconds, sizeof seconds);
}

static void add_value(Bytes *summary, const char *tag, double number)
{
    Bytes value = { 0 };
    const float single = (float)number;
    add_text(&value, 1, tag, strlen(tag));
    add_key(&value, 2, FLOAT);
    add_bytes(&value, &single, sizeof single);
    add_text(summary, 1, value.at, value.count);
    free(value.at);
}

/* --- Events --------------------------------------------------------------------------------------- */

static void write_version(double seconds, FILE *out)
{
    static const char version[] = "brain.Event:2";
    Bytes event = { 0 };
    add_time(&event, seconds);
    add_text(&event, 3, version, strlen(version));
    write_record(&event, out);
    free(event.at);
}

/* Lists have a number for each layer or rank: NAME/0, NAME/1. */
static void add_list(Bytes *summary, const cJSON *list)
{
    const cJSON *item;
    int i = 0;
    cJSON_ArrayForEach(item, list)
    {
        char tag[64];
        snprintf(tag, sizeof tag, "%s/%d", list->string, i++);
        if (cJSON_IsNumber(item))
            add_value(summary, tag, item->valuedouble);
    }
}

/* All numbers of a line of the log. */
static void write_step(const cJSON *line, double seconds, FILE *out)
{
    Bytes event = { 0 }, summary = { 0 };
    const cJSON *item;
    add_time(&event, seconds);
    cJSON_ArrayForEach(item, line)
    {
        add_list(&summary, item);
        if (!cJSON_IsNumber(item))
            continue;
        if (strcmp(item->string, "step") == 0) {
            add_key(&event, 2, VARINT);
            add_varint(&event, (uint64_t)item->valuedouble);
        } else {
            add_value(&summary, item->string, item->valuedouble);
        }
    }
    add_text(&event, 5, summary.at, summary.count);
    write_record(&event, out);
    free(summary.at);
    free(event.at);
}

/* A log has no times: its last step ended when the file was written, the others as much earlier as the steps took. */
static double start_time(const PlotRun *log)
{
    struct stat info;
    double seconds = stat(log->path, &info) == 0 ? (double)info.st_mtime : 0;
    for (int i = 0; i < log->count; i++)
        seconds -= isfinite(log->value[PLOT_MS][i]) ? log->value[PLOT_MS][i] / 1e3 : 0;
    return seconds;
}

static void write_steps(const PlotRun *log, FILE *in, FILE *out)
{
    double seconds = start_time(log);
    char *text = NULL;
    size_t room = 0;
    write_version(seconds, out);
    for (int i = 0; i < log->count && getline(&text, &room, in) > 0; i++) { /* as many lines as have been read before */
        cJSON *line = cJSON_Parse(text);
        seconds += isfinite(log->value[PLOT_MS][i]) ? log->value[PLOT_MS][i] / 1e3 : 0;
        write_step(line, seconds, out);
        cJSON_Delete(line);
    }
    free(text);
}

bool write_events(Run *run, const PlotRun *log, const char *folder)
{
    const char *path = arena_text(&run->arena, "%s/%s/events.out.tfevents.0.mpc", folder, log->name);
    NewFile file;
    FILE *in = fopen(log->path, "rb");
    if (!in)
        return run_failed(run, "cannot read %s: %s", log->path, strerror(errno));
    const bool good = open_new(run, &file, path);
    if (good)
        write_steps(log, in, file.out);
    fclose(in);
    return good && close_new(run, &file);
}
