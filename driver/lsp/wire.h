/* wire.h -- messages of the Language Server Protocol over a pipe: a head with Content-Length, and JSON. */
#ifndef MPC_LSP_WIRE_H
#define MPC_LSP_WIRE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes that were read and are not yet used. */
typedef struct {
    int file;
    char *bytes;
    size_t length, room;
    bool ended;
    /* While it waits for more: another file, -1 for none, and what is called once that can be read. */
    const int *also;
    void (*ready)(void *context);
    void *context;
} Stream;

typedef enum { READ_MESSAGE, READ_END, READ_BAD_HEAD, READ_BAD_JSON, READ_TOO_LONG } ReadResult;

/* Waits for a message.  *message is the caller's to delete; NULL unless the result is READ_MESSAGE. */
ReadResult read_message(Stream *stream, cJSON **message);

/* Would read_message() have something to read without waiting? */
bool has_input(const Stream *stream);

/* Writes it to standard output, and deletes it. */
void write_message(cJSON *message);

/* A response; result and id become part of it or are copied: id may be NULL, of what has no readable one. */
void respond(const cJSON *id, cJSON *result);
void respond_error(const cJSON *id, int code, const char *text);
void notify(const char *method, cJSON *params);

#endif
