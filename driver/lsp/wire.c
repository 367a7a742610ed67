/* wire.c -- reads and writes messages of the Language Server Protocol.
 *
 * A head is lines that end with an empty one; only Content-Length counts.  After a bad head, reading goes on behind it.
 */
#include "wire.h"

#include "arena.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MOST_HEAD = 4096, MOST_BYTES = 256 << 20 };

/* --- Reading ------------------------------------------------------------------------------------ */

static void make_room(Stream *stream, size_t more)
{
    if (stream->length + more <= stream->room)
        return;
    stream->room = 2 * stream->room > stream->length + more ? 2 * stream->room : stream->length + more;
    stream->bytes = realloc(stream->bytes, stream->room);
    if (!stream->bytes)
        out_of_memory(stream->room);
}

static void wait_for_input(Stream *stream)
{
    struct pollfd files[2] = { { .fd = stream->file, .events = POLLIN } };
    do {
        files[1] = (struct pollfd){ .fd = *stream->also, .events = POLLIN };
        if (poll(files, 2, -1) > 0 && files[1].revents)
            stream->ready(stream->context);
    } while (!files[0].revents);
}

/* Waits for more bytes; false at the end. */
static bool read_more(Stream *stream)
{
    make_room(stream, 65536);
    wait_for_input(stream);
    ssize_t got;
    do
        got = read(stream->file, stream->bytes + stream->length, 65536);
    while (got < 0 && errno == EINTR);
    stream->ended = got <= 0;
    stream->length += got > 0 ? (size_t)got : 0;
    return got > 0;
}

static void drop_bytes(Stream *stream, size_t count)
{
    memmove(stream->bytes, stream->bytes + count, stream->length - count);
    stream->length -= count;
    if (stream->room > (1 << 20) && stream->length < stream->room / 4) { /* after a long message */
        char *smaller = realloc(stream->bytes, stream->room / 2);
        stream->room = smaller ? stream->room / 2 : stream->room;
        stream->bytes = smaller ? smaller : stream->bytes;
    }
}

/* The size of the head with its empty line; 0: it is not complete. */
static size_t head_size(const Stream *stream)
{
    for (size_t i = 0; i < stream->length; i++) {
        const size_t left = stream->length - i;
        if (left >= 4 && memcmp(stream->bytes + i, "\r\n\r\n", 4) == 0)
            return i + 4;
        if (left >= 2 && memcmp(stream->bytes + i, "\n\n", 2) == 0)
            return i + 2;
        if (i > MOST_HEAD)
            return i;
    }
    return 0;
}

/* The Content-Length of a head; -1: it has none that is a number. */
static long long content_length(const char *head, size_t size)
{
    static const char name[] = "content-length:";
    const size_t length = sizeof name - 1;
    for (const char *line = head, *end = head + size; line && line < end;) {
        if ((size_t)(end - line) > length && strncasecmp(line, name, length) == 0) {
            char digits[24] = "", *after;
            const size_t left = (size_t)(end - line) - length;
            memcpy(digits, line + length, left < sizeof digits - 1 ? left : sizeof digits - 1);
            const long long number = strtoll(digits, &after, 10);
            return after == digits || number < 0 || !strchr("\r\n \t", *after) ? -1 : number;
        }
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    return -1;
}

ReadResult read_message(Stream *stream, cJSON **message)
{
    size_t head;
    *message = NULL;
    while ((head = head_size(stream)) == 0)
        if (!read_more(stream))
            return READ_END;
    const long long length = content_length(stream->bytes, head);
    drop_bytes(stream, head);
    if (length < 0)
        return READ_BAD_HEAD;
    if (length > MOST_BYTES)
        return READ_TOO_LONG;
    while (stream->length < (size_t)length)
        if (!read_more(stream))
            return READ_END;
    *message = cJSON_ParseWithLength(stream->bytes, (size_t)length);
    drop_bytes(stream, (size_t)length);
    return *message ? READ_MESSAGE : READ_BAD_JSON;
}

bool has_input(const Stream *stream)
{
    struct pollfd file = { .fd = stream->file, .events = POLLIN };
    return stream->length > 0 || (!stream->ended && poll(&file, 1, 0) > 0);
}

/* --- Writing ------------------------------------------------------------------------------------ */

void write_message(cJSON *message)
{
    char *text = cJSON_PrintUnformatted(message);
    if (!text)
        out_of_memory(1);
    printf("Content-Length: %zu\r\n\r\n%s", strlen(text), text);
    fflush(stdout);
    free(text);
    cJSON_Delete(message);
}

static cJSON *answer_to(const cJSON *id)
{
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "jsonrpc", "2.0");
    cJSON_AddItemToObject(answer, "id", id ? cJSON_Duplicate(id, true) : cJSON_CreateNull());
    return answer;
}

void respond(const cJSON *id, cJSON *result)
{
    cJSON *answer = answer_to(id);
    cJSON_AddItemToObject(answer, "result", result ? result : cJSON_CreateNull());
    write_message(answer);
}

void respond_error(const cJSON *id, int code, const char *text)
{
    cJSON *answer = answer_to(id), *error = cJSON_AddObjectToObject(answer, "error");
    cJSON_AddNumberToObject(error, "code", code);
    cJSON_AddStringToObject(error, "message", text);
    write_message(answer);
}

void notify(const char *method, cJSON *params)
{
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "jsonrpc", "2.0");
    cJSON_AddStringToObject(message, "method", method);
    cJSON_AddItemToObject(message, "params", params);
    write_message(message);
}
