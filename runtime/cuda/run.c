/* run.c -- functions of the program on a GPU.
 *
 * The first run of a function launches all work directly, since libraries initialise themselves in the first call.  The
 * second run records the queued work as CUDA graphs, which later runs launch: what stands before the loop over
 * micro-batches, one turn of it, and what stands after it; or one graph, if there is no such loop.
 *
 * Of a pipeline, each action is recorded when it comes first, and launched in the order of the schedule, with messages
 * between stages and early reductions of gradients beside it.  It reads the first slice of inputs, over which that of
 * its micro-batch is copied; and its slots, so there is a graph for each choice of these: as many as slots, however
 * many micro-batches. */
#include "far/far.h"
#include "gpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FUNCTIONS = 6, MAX_UPLOADS = 64 };

typedef struct {
    int64_t offset, bytes;
    char *memory; /* pinned host memory */
    bool is_fresh;
} Upload;

typedef struct {
    cudaGraphExec_t graph; /* NULL: no such part */
    RtTraffic *traffic;    /* of one run of the graph, by collective */
    int64_t moved;         /* bytes, of offloaded tensors */
} Graph;

enum { BEFORE, TURN, AFTER, PARTS };

/* An action of the micro-batches that have the same slots: `micro` and those each `period` later. */
typedef struct {
    RtAction action;
    int chunk;
    int64_t micro, period;
    Graph graph;
} ActionGraph;

typedef struct {
    int runs; /* without graphs */
    bool is_recorded;
    Graph part[PARTS]; /* without a loop: BEFORE alone */
    int64_t turns;
    int nslices;
    RtSlice *slice;
    const RtPipeline *pipeline; /* between BEFORE and AFTER; NULL: none */
    int nactions, room;
    ActionGraph *action;
} RecordedFunction;

struct RtGpuRuns {
    Upload upload[MAX_UPLOADS];
    int nuploads;
    RecordedFunction recorded[FUNCTIONS]; /* in the order of recorded_of() */
    RecordedFunction *recording;          /* NULL: work is queued directly */
    int part;                             /* that is being recorded */
    int64_t turns_left;                   /* of the loop: they are not */
    RecordedFunction *replayed;           /* whose pipeline runs, by graphs; NULL: none */
    int64_t first_slice;                  /* the micro-batch whose slices of inputs are the first ones; -1: none */
    cudaEvent_t *mark;
    int nmarks, room;
    double first_mark; /* seconds, as rt_seconds counts */
};

void rt_gpu_runs_open(Rt *rt) { rt->gpu->runs = rt_allocate(1, sizeof *rt->gpu->runs); }

static void drop_graph(Rt *rt, const Graph *graph)
{
    if (graph->graph)
        rt_gpu_check(rt, cudaGraphExecDestroy(graph->graph), "drop a graph");
    free(graph->traffic);
}

void rt_gpu_graphs_close(Rt *rt)
{
    RecordedFunction *recorded = rt->gpu->runs->recorded;
    for (int i = 0; i < FUNCTIONS; i++) {
        for (int k = 0; k < PARTS; k++)
            drop_graph(rt, &recorded[i].part[k]);
        for (int k = 0; k < recorded[i].nactions; k++)
            drop_graph(rt, &recorded[i].action[k].graph);
        free(recorded[i].action);
        free(recorded[i].slice);
        recorded[i] = (RecordedFunction){ 0 };
    }
}

void rt_gpu_runs_close(Rt *rt)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    for (int i = 0; i < runs->nuploads; i++)
        rt_gpu_check(rt, cudaFreeHost(runs->upload[i].memory), "free pinned memory");
    rt_gpu_graphs_close(rt);
    for (int i = 0; i < runs->room; i++)
        rt_gpu_check(rt, cudaEventDestroy(runs->mark[i]), "drop an event");
    free(runs->mark);
    free(runs);
}

/* --- Staged inputs ----------------------------------------------------------------------------------- */

void *rt_upload_place(Rt *rt, int64_t offset, int64_t bytes)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    Upload *upload = runs->upload;
    while (upload < runs->upload + runs->nuploads && (upload->offset != offset || upload->bytes < bytes))
        upload++;
    if (upload == runs->upload + runs->nuploads) {
        if (runs->nuploads == MAX_UPLOADS)
            rt_fail("internal: more than %d inputs are uploaded", MAX_UPLOADS);
        runs->nuploads++;
        *upload = (Upload){ .offset = offset, .bytes = bytes };
        void *memory;
        rt_gpu_check(rt, cudaHostAlloc(&memory, (size_t)bytes, cudaHostAllocDefault), "pin memory for its inputs");
        upload->memory = memory;
    }
    upload->is_fresh = true;
    return upload->memory;
}

static void upload_all(Rt *rt)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    for (Upload *s = runs->upload; s < runs->upload + runs->nuploads; s++) {
        if (s->is_fresh)
            rt_gpu_check(rt,
                         cudaMemcpyAsync(rt->arena + s->offset, s->memory, (size_t)s->bytes, cudaMemcpyHostToDevice,
                                         rt->gpu->compute),
                         "take its inputs");
        s->is_fresh = false;
    }
}

/* What has been started is behind what the compute stream does next; of collectives, those in `used`, or all. */
static void join_streams(Rt *rt, const RtTraffic *used)
{
    rt_gpu_collectives_join(rt, used);
    rt_gpu_transfers_join(rt);
}

/* --- Recording -------------------------------------------------------------------------------- */

static RecordedFunction *recorded_of(Rt *rt, const RtFunction *f)
{
    const RtProgram *program = rt->program;
    const RtFunction *const all[FUNCTIONS] = { &program->step,    &program->eval,   &program->predict,
                                               &program->outputs, &program->finish, &program->begin };
    int at = 0;
    while (all[at] != f)
        at++;
    return &rt->gpu->runs->recorded[at];
}

static void launch_all(Rt *rt, const RtFunction *f)
{
    f->run(rt, rt->arena);
    join_streams(rt, NULL);
}

static void begin_graph(Rt *rt, Graph *graph)
{
    const size_t bytes = (size_t)rt->program->ncollectives * sizeof *graph->traffic;
    graph->traffic = rt_allocate(rt->program->ncollectives, sizeof *graph->traffic);
    if (bytes)
        memcpy(graph->traffic, rt->traffic, bytes);
    graph->moved = rt_far_traffic(rt).moved;
    rt_gpu_check(rt, cudaStreamBeginCapture(rt->gpu->compute, cudaStreamCaptureModeThreadLocal),
                 "begin to record a graph");
}

static void begin_part(Rt *rt, int part)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    runs->part = part;
    begin_graph(rt, &runs->recording->part[part]);
}

/* Recorded work has not been executed: its traffic is counted when it is. */
static void take_back_traffic(Rt *rt, Graph *graph)
{
    RtTraffic *before = graph->traffic;
    const int64_t moved_before = graph->moved;
    graph->moved = rt_far_traffic(rt).moved - moved_before;
    if (rt->far)
        rt->far->moved = moved_before;
    for (int i = 0; i < rt->program->ncollectives; i++) {
        RtTraffic now = rt->traffic[i];
        rt->traffic[i] = before[i];
        before[i] =
            (RtTraffic){ .calls = now.calls - before[i].calls, .sent_bytes = now.sent_bytes - before[i].sent_bytes };
    }
}

static void end_graph(Rt *rt, Graph *to)
{
    cudaGraph_t graph;
    join_streams(rt, NULL);
    rt_gpu_check(rt, cudaStreamEndCapture(rt->gpu->compute, &graph), "record a graph (--no-graph goes without)");
    rt_gpu_check(rt, cudaGraphInstantiate(&to->graph, graph, cudaGraphInstantiateFlagUseNodePriority),
                 "make a graph (--no-graph goes without)");
    rt_gpu_check(rt, cudaGraphDestroy(graph), "drop a graph");
    take_back_traffic(rt, to);
}

static void end_part(Rt *rt)
{
    const struct RtGpuRuns *runs = rt->gpu->runs;
    end_graph(rt, &runs->recording->part[runs->part]);
}

static void record(Rt *rt, const RtFunction *f, RecordedFunction *recorded)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    runs->recording = recorded;
    begin_part(rt, BEFORE);
    f->run(rt, rt->arena);
    end_part(rt);
    runs->recording = NULL;
    recorded->is_recorded = true;
}

/* The first loop ends the part BEFORE; of another one, all turns are in the part AFTER. */
bool rt_turn(Rt *rt, int64_t turn, int64_t turns, int count, const RtSlice slices[])
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    RecordedFunction *recorded = runs->recording;
    if (!recorded || (runs->part == AFTER && runs->turns_left == 0))
        return true;
    if (runs->part == AFTER) {
        runs->turns_left--;
        return false;
    }
    end_part(rt);
    recorded->turns = turns;
    recorded->nslices = count;
    recorded->slice = rt_allocate(count, sizeof *slices);
    for (int i = 0; i < count; i++)
        recorded->slice[i] = slices[i];
    runs->turns_left = turns - 1;
    begin_part(rt, TURN);
    return true;
}

void rt_turn_over(Rt *rt)
{
    const struct RtGpuRuns *runs = rt->gpu->runs;
    if (!runs->recording || runs->part != TURN)
        return;
    end_part(rt);
    begin_part(rt, AFTER);
}

/* --- Running ---------------------------------------------------------------------------------- */

static void launch_part(Rt *rt, const Graph *part)
{
    if (!part->graph)
        return;
    for (int i = 0; i < rt->program->ncollectives; i++) {
        rt->traffic[i].calls += part->traffic[i].calls;
        rt->traffic[i].sent_bytes += part->traffic[i].sent_bytes;
    }
    if (rt->far)
        rt->far->moved += part->moved;
    rt_gpu_check(rt, cudaGraphLaunch(part->graph, rt->gpu->compute), "start a graph");
}

/* --- Actions of a pipeline ------------------------------------------------------------------------- */

bool rt_defers_pipeline(Rt *rt, const RtPipeline *p)
{
    const struct RtGpuRuns *runs = rt->gpu->runs;
    if (!runs->recording || runs->part != BEFORE || !p->records)
        return false;
    end_part(rt);
    runs->recording->pipeline = p;
    begin_part(rt, AFTER);
    return true;
}

int64_t rt_slice(const Rt *rt, int64_t micro) { return rt->gpu->runs->replayed ? 0 : micro; }

static const char *uploaded_at(const Rt *rt, int64_t offset)
{
    const struct RtGpuRuns *runs = rt->gpu->runs;
    for (const Upload *s = runs->upload; s < runs->upload + runs->nuploads; s++)
        if (s->offset <= offset && offset < s->offset + s->bytes)
            return s->memory + (offset - s->offset);
    rt_fail("internal: an input of the pipeline is not uploaded");
}

/* Copies the micro-batch's slices of inputs over the first ones. */
static void feed_slices(Rt *rt, const RtPipeline *p, int64_t micro)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    for (const RtFed *fed = p->fed; fed < p->fed + p->nfed && runs->first_slice != micro; fed++) {
        const int64_t first = rt_own_place(rt, fed->offset);
        rt_gpu_check(rt,
                     cudaMemcpyAsync(rt->arena + first, uploaded_at(rt, first) + micro * fed->bytes, (size_t)fed->bytes,
                                     cudaMemcpyHostToDevice, rt->gpu->compute),
                     "take its inputs");
    }
    runs->first_slice = micro;
}

static ActionGraph *find_action(RecordedFunction *recorded, RtAction action, int chunk, int64_t micro)
{
    for (ActionGraph *a = recorded->action; a < recorded->action + recorded->nactions; a++)
        if (a->action == action && a->chunk == chunk && (micro - a->micro) % a->period == 0)
            return a;
    return NULL;
}

static ActionGraph *add_action(RecordedFunction *recorded)
{
    if (recorded->nactions == recorded->room) {
        ActionGraph *grown = rt_allocate(recorded->room = 2 * recorded->room + 8, sizeof *grown);
        if (recorded->nactions)
            memcpy(grown, recorded->action, (size_t)recorded->nactions * sizeof *grown);
        free(recorded->action);
        recorded->action = grown;
    }
    return &recorded->action[recorded->nactions++];
}

/* Messages that are under way are waited for, this once: they are in no graph. */
static ActionGraph *record_action(Rt *rt, const RtPipeline *p, RtAction action, int chunk, int64_t micro, char *arena)
{
    ActionGraph *a = add_action(rt->gpu->runs->replayed);
    *a = (ActionGraph){ .action = action, .chunk = chunk, .micro = micro };
    join_streams(rt, NULL);
    begin_graph(rt, &a->graph);
    rt->slot_period = 1;
    p->action[action][chunk](rt, arena, micro);
    a->period = rt->slot_period;
    rt->slot_period = 0;
    end_graph(rt, &a->graph);
    return a;
}

void rt_run_action(Rt *rt, const RtPipeline *p, RtAction action, int chunk, int64_t micro, char *arena)
{
    RecordedFunction *recorded = rt->gpu->runs->replayed;
    if (!recorded) {
        p->action[action][chunk](rt, arena, micro);
        return;
    }
    feed_slices(rt, p, micro);
    const ActionGraph *a = find_action(recorded, action, chunk, micro);
    a = a ? a : record_action(rt, p, action, chunk, micro, arena);
    join_streams(rt, a->graph.traffic); /* groups have memory for one message at a time */
    launch_part(rt, &a->graph);
}

static void replay_pipeline(Rt *rt, RecordedFunction *recorded)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    runs->replayed = recorded;
    runs->first_slice = -1;
    rt_pipeline(rt, recorded->pipeline, rt->arena);
    join_streams(rt, NULL);
    runs->replayed = NULL;
}

static void launch_recorded(Rt *rt, RecordedFunction *recorded)
{
    launch_part(rt, &recorded->part[BEFORE]);
    if (recorded->pipeline)
        replay_pipeline(rt, recorded);
    for (int64_t turn = 0; turn < recorded->turns; turn++) {
        for (const RtSlice *s = recorded->slice; turn > 0 && s < recorded->slice + recorded->nslices; s++)
            rt_copy_bytes(rt, s->first, (const char *)s->first + turn * s->bytes, s->bytes);
        launch_part(rt, &recorded->part[TURN]);
    }
    launch_part(rt, &recorded->part[AFTER]);
}

/* Waits until the compute stream is idle, and answers other ranks meanwhile; a thread looks after time-outs (watch.c).
 */
static void finish(Rt *rt)
{
    if (!rt->gpu->collectives) {
        rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "run the program");
        return;
    }
    const double between = 0.25; /* seconds, of answers to other ranks */
    double listened = rt_seconds();
    for (cudaError_t status; (status = cudaStreamQuery(rt->gpu->compute)) != cudaSuccess;) {
        if (status != cudaErrorNotReady)
            rt_gpu_check(rt, status, "run the program");
        if (rt_seconds() - listened > between) {
            rt->program->comm->listen();
            listened = rt_seconds();
        }
        nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
    }
}

void rt_run(Rt *rt, const RtFunction *f)
{
    RecordedFunction *recorded = recorded_of(rt, f);
    rt_gpu_watch_begin(rt);
    upload_all(rt);
    if (rt->gpu->options.no_graph || rt_tracing || recorded->runs++ == 0) {
        launch_all(rt, f);
    } else {
        if (!recorded->is_recorded)
            record(rt, f, recorded);
        launch_recorded(rt, recorded);
    }
    rt_gpu_index_ask(rt);
    finish(rt);
    rt_gpu_watch_end(rt);
    rt_gpu_index_check(rt);
}

/* --- Marks: events on the compute stream ------------------------------------------------------ */

static int new_mark(Rt *rt, cudaStream_t stream)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    if (runs->nmarks == runs->room) {
        int room = runs->room ? 2 * runs->room : 1024;
        cudaEvent_t *grown = rt_allocate(room, sizeof *grown);
        if (runs->nmarks)
            memcpy(grown, runs->mark, (size_t)runs->nmarks * sizeof *grown);
        free(runs->mark);
        runs->mark = grown;
        for (; runs->room < room; runs->room++)
            rt_gpu_check(rt, cudaEventCreate(&grown[runs->room]), "make an event");
    }
    rt_gpu_check(rt, cudaEventRecord(runs->mark[runs->nmarks], stream), "record an event");
    return runs->nmarks++;
}

double rt_gpu_mark(Rt *rt, cudaStream_t stream)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    if (runs->nmarks == 0) {
        new_mark(rt, rt->gpu->compute);
        rt_gpu_check(rt, cudaEventSynchronize(runs->mark[0]), "record an event");
        runs->first_mark = rt_seconds();
    }
    return new_mark(rt, stream);
}

double rt_mark(Rt *rt) { return rt_gpu_mark(rt, rt->gpu->compute); }

double rt_time_of_mark(Rt *rt, double mark)
{
    struct RtGpuRuns *runs = rt->gpu->runs;
    float milliseconds = 0;
    rt_gpu_check(rt, cudaEventSynchronize(runs->mark[(int)mark]), "time an event");
    rt_gpu_check(rt, cudaEventElapsedTime(&milliseconds, runs->mark[0], runs->mark[(int)mark]), "time an event");
    return runs->first_mark + 1e-3 * (double)milliseconds;
}
