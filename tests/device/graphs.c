/* graphs.c -- graphs as recorded lists of work. */
#include "streams.h"

#include <stdio.h>
#include <string.h>

typedef struct CUgraph_st CUgraph_st;

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

static CUgraph_st *graphs;

/* --- Nodes ------------------------------------------------------------------------------------------ */

static Node *add_node(CUgraph_st *graph, Node node)
{
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 256;
        graph->node = realloc(graph->node, (size_t)graph->room * sizeof *graph->node);
    }
    graph->node[graph->count] = node;
    return &graph->node[graph->count++];
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

void emulated_record_work(EmulatedStream *stream, EmulatedWork *work, const void *data, size_t bytes)
{
    add_node(stream->capture, (Node){ stream, work, emulated_copy(data, bytes), bytes, -1, false, { 0 } });
}

int emulated_record_event(EmulatedStream *stream)
{
    add_node(stream->capture, (Node){ .stream = stream, .waits_for = -1 });
    return stream->capture->count - 1;
}

bool emulated_record_wait(EmulatedStream *stream, CUgraph_st *graph, int node, bool is_left_out)
{
    if (stream->capture && stream->capture != graph)
        return false;
    join_capture(graph, stream);
    graph->node[node].is_awaited = true;
    if (!is_left_out)
        add_node(graph, (Node){ .stream = stream, .waits_for = node });
    return true;
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
    for (int i = 0; i < graph->nstreams; i++)
        if (graph->from[i]->priority != graph->origin->priority && !(flags & cudaGraphInstantiateFlagUseNodePriority))
            emulated_fault("a graph is made without the priorities of its streams");
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
        graph->to[i] = emulated_new_stream(recorded->priority);
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
            emulated_enqueue(worker, emulated_wait, &graph->node[node->waits_for].place, sizeof(Place));
        } else {
            emulated_enqueue(worker, work_nothing, "", 1);
            node->place = (Place){ worker, worker->put };
        }
    }
    for (int i = 0; i < graph->nstreams; i++) /* a graph is complete when all its work is */
        if (graph->to[i]) {
            Place end = { graph->to[i], graph->to[i]->put };
            emulated_enqueue(stream, emulated_wait, &end, sizeof end);
        }
    return cudaSuccess;
}
