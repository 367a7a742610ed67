/* trace.h -- the traces of a run's ranks, and the messages between them. */
#ifndef MPC_DRIVER_TRACE_H
#define MPC_DRIVER_TRACE_H

#include "driver.h"

/* The file of one rank, as runtime/trainer/trace_write.c writes it: a line that says what it is, then an event a line.
 */
typedef struct {
    const char *path;
    struct stat status;
    int64_t line; /* the number of the line that was read last */
    const char *run, *model;
    int rank, ranks;
} TraceFile;

/* What a rank says of a message that it has sent or received. */
typedef struct {
    int64_t step, collective;
    int from, to;
    bool sends;
    int64_t order;     /* among all; a rank's are in the order of their starts */
    double begin, end; /* in microseconds */
    int row;
} TraceMessage;

typedef struct {
    TraceMessage *at;
    int64_t count, room;
} TraceMessages;

/* Reads the first line.  False after reporting. */
bool read_trace_head(Run *run, TraceFile *file, const char *path);

/* Copies the events to `out`, each after a comma unless it is the first; adds the messages.  False after reporting. */
bool copy_events(Run *run, TraceFile *file, bool is_first, FILE *out, TraceMessages *messages);

/* Writes an arrow from each message's begin, where it is sent, to where it arrives.  False after reporting one that has
 * no counterpart though both ranks are there. */
bool write_flows(Run *run, TraceMessages *messages, const bool *is_there, FILE *out);

#endif
