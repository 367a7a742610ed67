/* streams.h -- declarations shared by streams.c and graphs.c. */
#ifndef MPC_TESTS_STREAMS_H
#define MPC_TESTS_STREAMS_H

#include "device.h"

#include <cuda_runtime_api.h>

enum { MAX_STREAMS = 256 };

typedef struct Work {
    EmulatedWork *work;
    void *data;
    int64_t number; /* in the order of all streams */
    struct Work *next;
} Work;

struct CUstream_st {
    int64_t put, done; /* pieces of work ever queued; completed */
    int64_t asked;     /* how many had been queued when the processor last asked for their end */
    int64_t waits;     /* how often it asked for the end of new ones */
    Work *first, *last;
    struct CUgraph_st *capture; /* what it records; NULL: it works */
    int priority;               /* below 0: before others */
};

/* A position in a stream: reached when `number` pieces of work are complete. */
typedef struct {
    EmulatedStream *stream;
    int64_t number;
} Place;

struct CUevent_st {
    Place place; /* of the last record; stream NULL: none */
    struct CUgraph_st *capture;
    int node; /* of the graph */
    double seconds;
};

/* Works that are known by their functions: a wait for a Place. */
EmulatedWork emulated_wait;

/* While a graph records the stream: adds work (with a copy of its data), a record of an event, whose node is returned,
 * or a wait for one, which another stream may begin with. */
void emulated_record_work(EmulatedStream *stream, EmulatedWork *work, const void *data, size_t bytes);
int emulated_record_event(EmulatedStream *stream);
bool emulated_record_wait(EmulatedStream *stream, struct CUgraph_st *graph, int node, bool is_left_out);

EmulatedStream *emulated_new_stream(int priority);

/* Owned by the caller. */
void *emulated_copy(const void *data, size_t bytes);

#endif
