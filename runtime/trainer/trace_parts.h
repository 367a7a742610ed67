/* trace_parts.h -- the events of a trace, shared by trace.c, which records them, and trace_write.c. */
#ifndef MPC_RUNTIME_TRACE_PARTS_H
#define MPC_RUNTIME_TRACE_PARTS_H

#include "trace.h"

enum { RT_TRACED_LOOPS = 4 };

/* The rows of a rank, threads of the trace; of messages as many as are under way at once: two for each other rank. */
enum { RT_COMPUTATION_ROW, RT_COLLECTIVE_ROW, RT_PIPELINE_ROW, RT_MESSAGE_ROW, RT_TRACE_ROWS = RT_MESSAGE_ROW + 8 };

typedef struct {
    const char *dim; /* "h.copy": the copies of the repeat at path h; "micro": micro-batches; or another one */
    int64_t iteration;
} RtTraceIteration;

typedef struct {
    int kernel; /* index of a kernel or, after these, of a collective; or as in trace.h */
    int64_t step;
    double begin, end; /* marks of the device; after the step nanoseconds since the trace's origin */
    int row;
    int stage;                              /* of the action */
    char action;                            /* 'F', 'B', 'W'; 0: none */
    RtTraceIteration loop[RT_TRACED_LOOPS]; /* of the enclosing loops, outermost first */
    int loops;
} RtTraceEvent;

/* A message between two ranks.  It does not move: another thread writes its times. */
typedef struct {
    RtTraceEvent event;
    int64_t number; /* among those of its collective */
    int other;      /* the other rank */
    bool sends;
    double time[2];   /* marks of begin and end */
    double waited[2]; /* of the wait for it; as the event's */
} RtTraceMessage;

struct RtTrace {
    char *path;
    int64_t first, last; /* the recorded steps */
    uint64_t run;        /* a number that the ranks of a run have in common */
    double origin;       /* in seconds of this rank's clock; the same moment on all ranks */
    RtTraceEvent now;    /* what events have in common at present: step, action, loops */
    RtTraceEvent *events;
    int64_t count, room, first_of_step;
    RtTraceMessage **messages;
    int64_t nmessages, message_room, first_message_of_step;
    int64_t open[16]; /* unfinished events */
    int depth;
};

void rt_trace_write(const Rt *rt, const struct RtTrace *trace);

#endif
