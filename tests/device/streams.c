/* streams.c -- streams as queues, events as positions in them, and graphs as recorded lists of work. */
#include "device.h"

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_STREAMS = 256 };

typedef struct CUgraph_st CUgraph_st;

typedef struct Work {
    EmulatedWork *work;
    void *data;
    struct Work *next;
} Work;

struct CUstream_st {
    int64_t put, done; /* pieces of work ever queued; completed */
    int64_t asked;     /* how many had been queued when the processor last asked for their end */
    int64_t waits;     /* how often it asked for the end of new ones */
    Work *first, *last;
    CUgraph_st *capture; /* what it records; NULL: it works */
};

/* A position in a stream: reached when `number` pieces of work are complete. */
typedef struct {
    EmulatedStream *stream;
    int64_t number;
} Place;

struct CUevent_st {
    Place place; /* of the last record; stream NULL: none */
    CUgraph_st *capture;
    int node; /* of the graph */
    double seconds;
};

typedef struct {
    EmulatedStream *stream; /* that it was recorded from */
    EmulatedWork *work;     /* NULL: a record, or a wait */
    void *data;
    size_t bytes;
    int waits_for; /* the node of a record; -1: none */
    bool is_awaited;
    Place place; /* a record: of the last launch */
} Node;

struct CUgraph_st {
    EmulatedStream *origin;
    Node *node;
    int count, room;
    EmulatedStream *from[MAX_STREAMS], *to[MAX_STREAMS]; /* streams that joined, and their replacements at launch */
    int nstreams;
    CUgraph_st *next; /* of those that have not been dropped */
};

static EmulatedStream *streams[MAX_STREAMS];
static int nstreams;
static CUgraph_st *graphs;

/* --- Helpers ------------------------------------------------------------------------------------ */

int64_t emulated_number(const char *name, int64_t preset)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : preset;
}

void emulated_fault(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("emulated device: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    _exit(70);
}

static double seconds_ahead;

void emulated_take_longer(double seconds) { seconds_ahead += seconds; }

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return seconds_ahead + (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint32_t draw(uint32_t below)
{
    static uint64_t state;
    if (state == 0)
        state = (uint64_t)emulated_number("EMULATED_SEED", 0) * 2 + 1;
    state = state * 6364136223846793005u + 1442695040888963407u; /* D. E. Knuth's */
    return (uint32_t)(state >> 33) % below;
}

/* --- The scheduler ------------------------------------------------------------------------------- */

static void finish_first(EmulatedStream *stream)
{
    Work *work = stream->first;
    stream->first = work->next;
    stream->last = stream->first ? stream->last : NULL;
    stream->done++;
    free(work->data);
    free(work);
}

/* Reorders streams; delayed streams stay delayed for a while. */
static void shuffle(void)
{
    for (int i = nstreams - 1; i > 0; i--) {
        int other = (int)draw((uint32_t)i + 1);
        EmulatedStream *stream = streams[i];
        streams[i] = streams[other];
        streams[other] = stream;
    }
}

/* Runs one piece of work of the first stream that can continue. */
static bool step(void)
{
    static int64_t count;
    while (count == emulated_number("EMULATED_STOP", -1))
        sleep(1);
    if (draw(32) == 0)
        shuffle();
    for (int i = 0; i < nstreams; i++)
        if (streams[i]->first && streams[i]->first->work(streams[i]->first->data)) {
            finish_first(streams[i]);
            count++;
            return true;
        }
    return false;
}

/* Other ranks, which share this machine's processors, are to be waited for. */
static void rest(void) { nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL); }

static void run_until(Place place)
{
    emulated_open_memory();
    while (place.stream->done < place.number)
        if (!step())
            rest(); /* waits for other ranks */
    emulated_close_memory();
}

void emulated_drain(EmulatedStream *stream) { run_until((Place){ stream, stream->put }); }

static bool is_idle(void)
{
    for (int i = 0; i < nstreams; i++)
        if (streams[i]->first)
            return false;
    return true;
}

void emulated_load(void)
{
    if (!emulated_number("EMULATED_LAZY", 0))
        return;
    emulated_open_memory();
    while (!is_idle())
        if (!step())
            rest();
    emulated_close_memory();
}

bool emulated_advance(EmulatedStream *stream)
{
    enum { SOME = 64 };
    bool goes_on = true;
    emulated_open_memory();
    for (int i = 0; i < SOME && goes_on && stream->done < stream->put; i++)
        goes_on = step();
    emulated_close_memory();
    if (!goes_on)
        rest();
    return stream->done == stream->put;
}

static Node *add_node(CUgraph_st *graph, Node node)
{
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 256;
        graph->node = realloc(graph->node, (size_t)graph->room * sizeof *graph->node);
    }
    graph->node[graph->count] = node;
    return &graph->node[graph->count++];
}

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    memcpy(copy, data, bytes);
    return copy;
}

void emulated_enqueue(EmulatedStream *stream, EmulatedWork *work, const void *data, size_t bytes)
{
    if (stream->capture) {
        add_node(stream->capture, (Node){ stream, work, copy_of(data, bytes), bytes, -1, false, { 0 } });
        return;
    }
    Work *last = malloc(sizeof *last);
    *last = (Work){ work, copy_of(data, bytes), NULL };
    *(stream->last ? &stream->last->next : &stream->first) = last;
    stream->last = last;
    stream->put++;
}

/* --- Waits of the processor -------------------------------------------------------------------------- */

static const EmulatedStream *first_made;
static int64_t first_waits;

void emulated_forget_waits(void)
{
    for (int i = 0; i < nstreams; i++)
        streams[i]->waits = 0;
    first_waits = 0;
}

static void write_waits(void)
{
    FILE *out = fopen(getenv("EMULATED_WAITS"), "w");
    if (!out || fprintf(out, "%lld\n", (long long)first_waits) < 0 || fclose(out) != 0)
        emulated_fault("$EMULATED_WAITS cannot be written");
}

/* The processor asks for the end of all that is queued: again and again perhaps, which is one wait. */
static void note_wait(EmulatedStream *stream)
{
    static bool is_registered;
    if (!is_registered && getenv("EMULATED_WAITS"))
        atexit(write_waits);
    is_registered = true;
    stream->waits += stream->put > stream->asked;
    stream->asked = stream->put;
    first_waits = stream == first_made ? stream->waits : first_waits;
}

/* --- Streams ---------------------------------------------------------------------------------------- */

static EmulatedStream *new_stream(void)
{
    if (nstreams == MAX_STREAMS)
        emulated_fault("more than %d streams", MAX_STREAMS);
    EmulatedStream *stream = calloc(1, sizeof *stream);
    first_made = first_made ? first_made : stream;
    return streams[nstreams++] = stream;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    *stream = new_stream();
    shuffle();
    return flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emulated_drain(stream);
    for (int i = 0; i < nstreams; i++)
        if (streams[i] == stream)
            streams[i] = streams[--nstreams];
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (stream->capture)
        return cudaErrorStreamCaptureUnsupported;
    note_wait(stream);
    emulated_drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (stream->capture)
        return cudaErrorStreamCaptureUnsupported;
    note_wait(stream);
    return emulated_advance(stream) ? cudaSuccess : cudaErrorNotReady;
}

/* --- Events ----------------------------------------------------------------------------------------- */

static bool work_record(void *data)
{
    cudaEvent_t event = *(cudaEvent_t *)data;
    event->seconds = seconds_now();
    return true;
}

static bool work_wait(void *data)
{
    const Place *place = data;
    return place->stream->done >= place->number;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event->place.stream)
        run_until(event->place);
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->capture = stream->capture;
    if (stream->capture) {
        add_node(stream->capture, (Node){ .stream = stream, .waits_for = -1 });
        event->node = stream->capture->count - 1;
        return cudaSuccess;
    }
    emulated_enqueue(stream, work_record, &event, sizeof event);
    event->place = (Place){ stream, stream->put };
    return cudaSuccess;
}

static void join_capture(CUgraph_st *graph, EmulatedStream *stream)
{
    stream->capture = graph;
    for (int i = 0; i < graph->nstreams; i++)
        if (graph->from[i] == stream)
            return;
    graph->from[graph->nstreams] = stream;
    graph->to[graph->nstreams++] = NULL;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    static int64_t count;
    bool is_left_out = ++count == emulated_number("EMULATED_FORGET_WAIT", 0);
    if (event->capture) {
        if (stream->capture && stream->capture != event->capture)
            return cudaErrorStreamCaptureMerge;
        join_capture(event->capture, stream);
        event->capture->node[event->node].is_awaited = true;
        if (!is_left_out)
            add_node(stream->capture, (Node){ .stream = stream, .waits_for = event->node });
        return cudaSuccess;
    }
    if (event->place.stream && !is_left_out)
        emulated_enqueue(stream, work_wait, &event->place, sizeof event->place);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->place.stream) {
        note_wait(event->place.stream);
        run_until(event->place);
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (!start->place.stream || !end->place.stream)
        return cudaErrorInvalidResourceHandle;
    if (!work_wait(&start->place) || !work_wait(&end->place))
        return cudaErrorNotReady;
    *milliseconds = (float)(1e3 * (end->seconds - start->seconds));
    return cudaSuccess;
}

/* --- Graphs ----------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    CUgraph_st *graph = calloc(1, sizeof *graph);
    graph->origin = stream;
    graph->next = graphs;
    graphs = graph;
    join_capture(graph, stream);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    *status = stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Is the last work of a stream a record with a wait? */
static bool is_joined(const CUgraph_st *graph, const EmulatedStream *stream)
{
    for (int i = graph->count - 1; i >= 0; i--)
        if (graph->node[i].stream == stream)
            return !graph->node[i].work && graph->node[i].waits_for < 0 && graph->node[i].is_awaited;
    return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = stream->capture;
    if (!*graph || (*graph)->origin != stream)
        return cudaErrorStreamCaptureUnmatched;
    cudaError_t status = cudaSuccess;
    for (int i = 0; i < (*graph)->nstreams; i++) {
        (*graph)->from[i]->capture = NULL;
        if ((*graph)->from[i] != stream && !is_joined(*graph, (*graph)->from[i]))
            status = cudaErrorStreamCaptureUnjoined;
    }
    return status;
}

static void note_nodes(int count)
{
    static int most, all;
    FILE *out = getenv("EMULATED_NODES") ? fopen(getenv("EMULATED_NODES"), "w") : NULL;
    most = count > most ? count : most;
    all += count;
    if (out && (fprintf(out, "%d %d\n", most, all) < 0 || fclose(out) != 0))
        emulated_fault("$EMULATED_NODES cannot be written");
}

/* The graph itself is the executable graph. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *started, cudaGraph_t graph, unsigned long long flags)
{
    note_nodes(graph->count);
    *started = (cudaGraphExec_t)(void *)graph;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return cudaSuccess; }

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t started)
{
    CUgraph_st *graph = (CUgraph_st *)(void *)started, **at = &graphs;
    while (*at != graph)
        at = &(*at)->next;
    *at = graph->next;
    for (int i = 0; i < graph->count; i++)
        free(graph->node[i].data);
    free(graph->node);
    free(graph);
    return cudaSuccess;
}

bool emulated_is_recorded(EmulatedWork *work, const void *first)
{
    for (const CUgraph_st *graph = graphs; graph; graph = graph->next)
        for (int i = 0; i < graph->count; i++)
            if (graph->node[i].work == work && memcmp(graph->node[i].data, &first, sizeof first) == 0)
                return true;
    return false;
}

static EmulatedStream *worker_of(CUgraph_st *graph, const EmulatedStream *recorded, EmulatedStream *launched)
{
    int i = 0;
    while (graph->from[i] != recorded)
        i++;
    if (recorded == graph->origin)
        return launched;
    if (!graph->to[i])
        graph->to[i] = new_stream();
    return graph->to[i];
}

static bool work_nothing(void *data) { return true; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t started, cudaStream_t stream)
{
    CUgraph_st *graph = (CUgraph_st *)(void *)started;
    for (int i = 0; i < graph->count; i++) {
        Node *node = &graph->node[i];
        EmulatedStream *worker = worker_of(graph, node->stream, stream);
        if (node->work) {
            emulated_enqueue(worker, node->work, node->data, node->bytes);
        } else if (node->waits_for >= 0) {
            emulated_enqueue(worker, work_wait, &graph->node[node->waits_for].place, sizeof(Place));
        } else {
            emulated_enqueue(worker, work_nothing, "", 1);
            node->place = (Place){ worker, worker->put };
        }
    }
    for (int i = 0; i < graph->nstreams; i++) /* a graph is complete when all its work is */
        if (graph->to[i]) {
            Place end = { graph->to[i], graph->to[i]->put };
            emulated_enqueue(stream, work_wait, &end, sizeof end);
        }
    return cudaSuccess;
}
