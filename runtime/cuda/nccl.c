/* nccl.c -- collectives through NCCL: one communicator and one stream for each group of axes.
 *
 * Events order the compute stream and the collective's stream at its start and wait, without the processor.  NCCL needs
 * contiguous messages; if a tensor's part for one rank is not contiguous, message.c packs it.
 *
 * For each collective, a byte in the GPU's memory records its progress, so that a time-out can name it, even in a
 * graph, of which the processor observes only begin and end. */
#include "gpu.h"

#include "mesh/comm.h"
#include "sizes.h"
#include "trainer/trace.h"

#include <math.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS(F)                                                                                                   \
    F(ncclGetVersion)                                                                                                  \
    F(ncclGetUniqueId)                                                                                                 \
    F(ncclCommInitRankConfig)                                                                                          \
    F(ncclCommGetAsyncError)                                                                                           \
    F(ncclCommFinalize)                                                                                                \
    F(ncclCommDestroy)                                                                                                 \
    F(ncclGroupStart)                                                                                                  \
    F(ncclGroupEnd)                                                                                                    \
    F(ncclAllReduce)                                                                                                   \
    F(ncclAllGather)                                                                                                   \
    F(ncclReduceScatter)                                                                                               \
    F(ncclSend)                                                                                                        \
    F(ncclRecv)                                                                                                        \
    F(ncclGetErrorString)                                                                                              \
    F(ncclGetLastError)

#define POINTER(function) __typeof__(&function) function;
#define NAME(function) #function,

typedef struct {
    const RtGroup *group;
    ncclComm_t comm;
    cudaStream_t stream;
    char *workspace;
    cudaEvent_t end;
    int64_t calls, joined; /* on its stream; for the first `joined` of them the compute stream has waited */
} Channel;

enum { MESSAGES = 256 };
typedef enum { IDLE, BEGUN, DONE } Progress;

typedef struct {
    Channel *channel;
    cudaEvent_t begun, done;
    cudaEvent_t message[MESSAGES]; /* the ends of the last messages of a send; NULL: not yet */
    int64_t started;
    int64_t call;       /* the number of its last one on its channel, from 1 on */
    int64_t sent_bytes; /* by one call, to other ranks */
} Entry;

struct RtGpuCollectives {
    union {
        struct {
            FUNCTIONS(POINTER)
        };
        void *at[15];
    };
    int nchannels;
    Channel *channel;
    Entry *entry;
    unsigned char *progress; /* of each collective, in the GPU's memory: Progress */
    unsigned char *seen;     /* the last copy of it on the processor */
    double changed;          /* time of its last change, in seconds since the start of the wait */
    double looked;
    cudaStream_t watch; /* for copying it while other streams are blocked */
};

/* --- Errors of NCCL ---------------------------------------------------------------------------- */

static _Noreturn void refuse(const Rt *rt, const Channel *channel, const char *what, ncclResult_t status)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    rt_fail("%s: NCCL cannot %s: %s%s%s", rt_comm_place(rt, rt->rank), what, c->ncclGetErrorString(status),
            channel && channel->comm ? ": " : "", channel && channel->comm ? c->ncclGetLastError(channel->comm) : "");
}

/* Communicators are nonblocking: waits until the operation is complete or times out. */
static void await_nccl(const Rt *rt, const Channel *channel, const char *what, ncclResult_t status)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    for (double begin = rt_seconds(); status == ncclInProgress;) {
        ncclResult_t asked = c->ncclCommGetAsyncError(channel->comm, &status);
        if (asked != ncclSuccess)
            status = asked;
        if (status == ncclInProgress && rt_seconds() - begin > rt->waiting.timeout)
            rt_fail("%s has waited %.0f s for other ranks to %s with NCCL: check whether all still run; "
                    "--timeout SECONDS waits longer",
                    rt_comm_place(rt, rt->rank), rt_seconds() - begin, what);
        if (status == ncclInProgress && rt_seconds() - begin > 1e-3) /* a collective is queued in microseconds */
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    if (status != ncclSuccess)
        refuse(rt, channel, what, status);
}

/* --- Start --------------------------------------------------------------------------------------- */

typedef struct {
    int version;
    char host[60];
    ncclUniqueId id;
} Card;

/* Exchanges cards: cards[q] is that of rank q of the group. */
static void exchange_cards(Rt *rt, const RtGroup *group, const Card *own, Card *cards)
{
    RtMessage *to = rt_allocate(group->count, sizeof *to), *from = rt_allocate(group->count, sizeof *from);
    cards[group->own] = *own;
    for (int q = 0; q < group->count; q++) {
        to[q] = (RtMessage){ (char *)&cards[group->own], sizeof *cards };
        from[q] = (RtMessage){ (char *)&cards[q], sizeof *cards };
    }
    rt_exchange_messages(rt, group, to, from);
    for (int q = 0; q < group->count; q++)
        rt_comm_clean(cards[q].host, sizeof cards[q].host);
    free(to);
    free(from);
}

static void check_versions(const Rt *rt, const RtGroup *group, const Card *cards)
{
    for (int q = 0; q < group->count; q++)
        if (cards[q].version != cards[0].version)
            rt_fail("rank %d on %s has NCCL %d and rank %d on %s has NCCL %d: give all ranks the same library",
                    group->rank[0], cards[0].host, cards[0].version, group->rank[q], cards[q].host, cards[q].version);
}

static void open_channel(Rt *rt, Channel *channel, const RtGroup *group, char *workspace)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    Card own = { .version = 0 }, *cards = rt_allocate(group->count, sizeof *cards);
    channel->group = group;
    channel->workspace = workspace;
    c->ncclGetVersion(&own.version);
    gethostname(own.host, sizeof own.host - 1);
    if (group->own == 0)
        await_nccl(rt, channel, "make an id", c->ncclGetUniqueId(&own.id));
    exchange_cards(rt, group, &own, cards);
    check_versions(rt, group, cards);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    await_nccl(rt, channel, "form a group",
               c->ncclCommInitRankConfig(&channel->comm, group->count, cards[0].id, group->own, &config));
    free(cards);
    rt_gpu_check(rt, cudaStreamCreateWithFlags(&channel->stream, cudaStreamNonBlocking), "make a stream");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&channel->end, cudaEventDisableTiming), "make an event");
}

static Channel *find_channel(struct RtGpuCollectives *c, const RtGroup *group)
{
    for (int i = 0; i < c->nchannels; i++)
        if (c->channel[i].group == group)
            return &c->channel[i];
    return NULL;
}

static int64_t sent_by(const RtCollective *c, int ranks)
{
    int64_t bytes = rt_message_bytes(c);
    return c->kind == RT_ROTATE       ? bytes
           : c->kind == RT_ALL_REDUCE ? 2 * bytes * (ranks - 1) / ranks
                                      : bytes * (ranks - 1);
}

static void open_entry(Rt *rt, int id, char **workspace)
{
    struct RtGpuCollectives *all = rt->gpu->collectives;
    const RtCollective *c = &rt->program->collectives[id];
    const RtGroup *group = rt_comm_group(rt, c);
    Entry *entry = &all->entry[id];
    rt_gpu_check(rt, cudaEventCreateWithFlags(&entry->begun, cudaEventDisableTiming), "make an event");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&entry->done, cudaEventDisableTiming), "make an event");
    if (!group->channel) /* others run it */
        return;
    entry->channel = find_channel(all, group);
    if (!entry->channel) {
        entry->channel = &all->channel[all->nchannels++];
        open_channel(rt, entry->channel, group, *workspace);
        *workspace += rt_gpu_group_space(rt, group);
    }
    entry->sent_bytes = sent_by(c, group->count);
    rt->traffic[id].seconds = rt->traffic[id].waited = NAN; /* measured only by a trace */
}

void rt_collectives_open(Rt *rt)
{
    static const char *const names[] = { FUNCTIONS(NAME) };
    const RtProgram *program = rt->program;
    if (!program->comm)
        return;
    struct RtGpuCollectives *c = rt->gpu->collectives = rt_allocate(1, sizeof *c);
    rt_library_load("NCCL", "libnccl.so.2", sizeof names / sizeof *names, names, c->at);
    c->entry = rt_allocate(program->ncollectives, sizeof *c->entry);
    c->channel = rt_allocate(program->ncollectives, sizeof *c->channel);
    c->seen = rt_allocate(program->ncollectives, 1);
    c->progress = (unsigned char *)rt->gpu->message_space;
    rt_gpu_check(rt, cudaMemsetAsync(c->progress, 0, (size_t)program->ncollectives, rt->gpu->compute), "zero memory");
    char *workspace = rt_gpu_messages_open(rt, rt->gpu->message_space);
    for (int i = 0; i < program->ncollectives; i++)
        open_entry(rt, i, &workspace);
    rt_gpu_check(rt, cudaStreamCreateWithFlags(&c->watch, cudaStreamNonBlocking), "make a stream");
}

/* All first come to rest, which needs the other ranks: one after another, ranks with different groups could wait for
 * each other.  NCCL also waits for recorded graphs with collectives of the communicator. */
static void close_communicators(Rt *rt)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    ncclResult_t *status = rt_allocate(c->nchannels, sizeof *status);
    rt_gpu_graphs_close(rt);
    for (int i = 0; i < c->nchannels; i++)
        status[i] = c->ncclCommFinalize(c->channel[i].comm);
    for (int i = 0; i < c->nchannels; i++) {
        await_nccl(rt, &c->channel[i], "come to rest", status[i]);
        c->ncclCommDestroy(c->channel[i].comm);
    }
    free(status);
}

void rt_collectives_close(Rt *rt)
{
    struct RtGpuCollectives *c = rt->gpu->collectives;
    if (!c)
        return;
    close_communicators(rt);
    for (int i = 0; i < rt->program->ncollectives; i++) {
        rt_gpu_check(rt, cudaEventDestroy(c->entry[i].begun), "drop an event");
        rt_gpu_check(rt, cudaEventDestroy(c->entry[i].done), "drop an event");
        for (int k = 0; k < MESSAGES && c->entry[i].message[k]; k++)
            rt_gpu_check(rt, cudaEventDestroy(c->entry[i].message[k]), "drop an event");
    }
    for (int i = 0; i < c->nchannels; i++) {
        Channel *channel = &c->channel[i];
        rt_gpu_check(rt, cudaEventDestroy(channel->end), "drop an event");
        rt_gpu_check(rt, cudaStreamDestroy(channel->stream), "drop a stream");
    }
    rt_gpu_check(rt, cudaStreamDestroy(c->watch), "drop a stream");
    rt_gpu_messages_close(rt);
    free(c->entry);
    free(c->channel);
    free(c->seen);
    free(c);
    rt->gpu->collectives = NULL;
}

/* --- Messages ------------------------------------------------------------------------------------- */

static ncclDataType_t type_of(RtType type)
{
    switch (type) {
    case RT_F32:
        return ncclFloat32;
    case RT_BF16:
        return ncclBfloat16;
    case RT_F16:
        return ncclFloat16;
    case RT_I32:
        return ncclInt32;
    case RT_BOOL:
        break;
    }
    return ncclUint8;
}

/* Calls of a group are only collected: a non-blocking communicator may say of one that it is in progress. */
static bool is_taken(ncclResult_t status) { return status == ncclSuccess || status == ncclInProgress; }

/* Every rank sends one message to each, and receives one from each; in a rotation to and from one only. */
static ncclResult_t swap_messages(const struct RtGpuCollectives *all, const Channel *channel, const char *to,
                                  char *from, int64_t count, const RtCollective *c)
{
    const int n = channel->group->count, own = channel->group->own;
    const bool rotates = c->kind == RT_ROTATE;
    ncclResult_t status = ncclSuccess;
    int64_t bytes = rotates ? 0 : count * rt_type_bytes(c->type);
    for (int q = 0; q < n && is_taken(status); q++) {
        if (!rotates || (q + c->turn) % n == own)
            status = all->ncclSend(to + q * bytes, (size_t)count, type_of(c->type), q, channel->comm, channel->stream);
        if (is_taken(status) && (!rotates || (own + c->turn) % n == q))
            status =
                all->ncclRecv(from + q * bytes, (size_t)count, type_of(c->type), q, channel->comm, channel->stream);
    }
    return status;
}

static ncclResult_t send_piece(const struct RtGpuCollectives *all, const RtCollective *c, const Channel *channel,
                               const RtPiece *piece, char *to, char *from)
{
    RtSlots sent = rt_sent_slots(c->kind, piece), received = rt_received_slots(c->kind, piece);
    size_t count = (size_t)(sent.rows * sent.run), most = (size_t)(received.rows * received.run);
    ncclRedOp_t op = c->maximum ? ncclMax : ncclSum;
    switch (c->kind) {
    case RT_ALL_REDUCE:
        return all->ncclAllReduce(to, from, count, type_of(c->type), op, channel->comm, channel->stream);
    case RT_ALL_GATHER:
        return all->ncclAllGather(to, from, count, type_of(c->type), channel->comm, channel->stream);
    case RT_REDUCE_SCATTER:
        return all->ncclReduceScatter(to, from, most, type_of(c->type), op, channel->comm, channel->stream);
    case RT_ALL_TO_ALL:
    case RT_ROTATE:
    case RT_SEND: /* see exchange_with */
        break;
    }
    return swap_messages(all, channel, to, from, (int64_t)count, c);
}

/* Queues a whole collective on the channel's stream.  NCCL runs the calls of a group at the same time, but the memory
 * plan has its pieces one after the other: where one writes over what another has read before, a new group begins. */
static void enqueue(Rt *rt, int id, const Channel *channel, const void *const in[], void *const out[])
{
    const struct RtGpuCollectives *all = rt->gpu->collectives;
    const RtCollective *c = &rt->program->collectives[id];
    char **to = rt_allocate(c->npieces, sizeof *to), **from = rt_allocate(c->npieces, sizeof *from);
    rt_gpu_pack(rt, id, channel->stream, channel->workspace, in, to);
    rt_gpu_expect(rt, id, channel->workspace, out, from);
    ncclResult_t status = all->ncclGroupStart();
    for (int i = 0, first = 0; i < c->npieces && is_taken(status); i++) {
        if (rt_gpu_writes_over(c, channel->group->count, first, i, to, from)) {
            await_nccl(rt, channel, "begin a collective", all->ncclGroupEnd());
            all->ncclGroupStart();
            first = i;
        }
        status = send_piece(all, c, channel, &c->piece[i], to[i], from[i]);
    }
    if (!is_taken(status))
        refuse(rt, channel, rt_collective_text(rt, c), status);
    await_nccl(rt, channel, "begin a collective", all->ncclGroupEnd());
    rt_gpu_unpack(rt, id, channel->stream, channel->workspace, out);
    free(to);
    free(from);
}

/* --- Interface for generated code ------------------------------------------------------------------- */

static void note_progress(Rt *rt, int id, Progress progress)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    rt_gpu_check(rt, cudaMemsetAsync(c->progress + id, (int)progress, 1, c->entry[id].channel->stream),
                 "note progress");
}

/* While tracing: now, on the stream of a collective. */
static double mark_of(Rt *rt, int id)
{
    return rt_tracing ? rt_gpu_mark(rt, rt->gpu->collectives->entry[id].channel->stream) : 0;
}

/* Begins a collective on its stream, after what the compute stream has to do. */
static double begin(Rt *rt, int id)
{
    Entry *entry = &rt->gpu->collectives->entry[id];
    Channel *channel = entry->channel;
    rt_gpu_check(rt, cudaEventRecord(entry->begun, rt->gpu->compute), "record an event");
    rt_gpu_check(rt, cudaStreamWaitEvent(channel->stream, entry->begun, 0), "wait for an event");
    double begun = mark_of(rt, id);
    note_progress(rt, id, BEGUN);
    return begun;
}

static void end(Rt *rt, int id, int64_t sent_bytes)
{
    Entry *entry = &rt->gpu->collectives->entry[id];
    Channel *channel = entry->channel;
    note_progress(rt, id, DONE);
    rt_gpu_check(rt, cudaEventRecord(entry->done, channel->stream), "record an event");
    entry->call = ++channel->calls;
    rt->traffic[id].calls++;
    rt->traffic[id].sent_bytes += sent_bytes;
}

void rt_collective_start(Rt *rt, int id, const void *const in[], void *const out[])
{
    const Entry *entry = &rt->gpu->collectives->entry[id];
    double begun = begin(rt, id);
    enqueue(rt, id, entry->channel, in, out);
    end(rt, id, entry->sent_bytes);
    if (rt_tracing)
        rt_trace_span(rt, rt->program->nkernels + id, true, begun, mark_of(rt, id));
}

/* What has been joined was perhaps started beside the graph that is being recorded, which knows nothing of it. */
void rt_collective_wait(Rt *rt, int id)
{
    const Entry *entry = &rt->gpu->collectives->entry[id];
    if (entry->channel && entry->call > entry->channel->joined)
        rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, entry->done, 0), "wait for an event");
}

void rt_collective(Rt *rt, int id, const void *const in[], void *const out[])
{
    rt_collective_start(rt, id, in, out);
    rt_collective_wait(rt, id);
}

/* A message: its end is an event of its own, since others of the collective may start before it is waited for. */
static int64_t start_message(Rt *rt, int id, int other, const void *sent, void *received)
{
    const struct RtGpuCollectives *all = rt->gpu->collectives;
    const RtCollective *c = &rt->program->collectives[id];
    Entry *entry = &all->entry[id];
    const Channel *channel = entry->channel;
    const size_t bytes = (size_t)rt_message_bytes(c);
    double begun = begin(rt, id);
    await_nccl(rt, channel, sent ? "send" : "receive",
               sent ? all->ncclSend(sent, bytes, ncclUint8, other, channel->comm, channel->stream)
                    : all->ncclRecv(received, bytes, ncclUint8, other, channel->comm, channel->stream));
    end(rt, id, sent ? (int64_t)bytes : 0);
    if (rt_tracing) {
        double *times = rt_trace_message(rt, id, entry->started, other, sent != NULL);
        times[0] = begun;
        times[1] = mark_of(rt, id);
    }
    cudaEvent_t *event = &entry->message[entry->started % MESSAGES];
    if (!*event)
        rt_gpu_check(rt, cudaEventCreateWithFlags(event, cudaEventDisableTiming), "make an event");
    rt_gpu_check(rt, cudaEventRecord(*event, channel->stream), "record an event");
    return entry->started++;
}

/* The coordinate on its only axis is the number of a member of its group. */
int64_t rt_send_start(Rt *rt, int id, int to, const void *data) { return start_message(rt, id, to, data, NULL); }

int64_t rt_receive_start(Rt *rt, int id, int from, void *data) { return start_message(rt, id, from, NULL, data); }

/* Of a message so long ago that its event is another one's now, the later one is waited for. */
void rt_message_wait(Rt *rt, int id, int64_t number)
{
    const Entry *entry = &rt->gpu->collectives->entry[id];
    const double from = rt_tracing ? rt_mark(rt) : 0;
    rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, entry->message[number % MESSAGES], 0), "wait for an event");
    if (rt_tracing)
        rt_trace_message_wait(rt, id, number, from, rt_mark(rt));
}

void rt_send(Rt *rt, int id, int to, const void *data) { rt_message_wait(rt, id, rt_send_start(rt, id, to, data)); }

void rt_receive(Rt *rt, int id, int from, void *data) { rt_message_wait(rt, id, rt_receive_start(rt, id, from, data)); }

void rt_gpu_collectives_join(Rt *rt, const RtTraffic *used)
{
    struct RtGpuCollectives *c = rt->gpu->collectives;
    for (int i = 0; c && i < rt->program->ncollectives; i++) {
        Channel *channel = c->entry[i].channel;
        if (!channel || channel->joined == channel->calls || (used && !used[i].calls))
            continue;
        rt_gpu_check(rt, cudaEventRecord(channel->end, channel->stream), "record an event");
        rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, channel->end, 0), "wait for an event");
        channel->joined = channel->calls;
    }
}

/* --- Waiting ------------------------------------------------------------------------------------------ */

/* The first collective that has started and is not complete, or NULL. */
static const RtCollective *look(Rt *rt, double seconds)
{
    struct RtGpuCollectives *c = rt->gpu->collectives;
    int count = rt->program->ncollectives;
    unsigned char *now = rt_allocate(count, 1);
    const RtCollective *under_way = NULL;
    rt_gpu_check(rt, cudaMemcpyAsync(now, c->progress, (size_t)count, cudaMemcpyDeviceToHost, c->watch),
                 "look at progress");
    rt_gpu_check(rt, cudaStreamSynchronize(c->watch), "look at progress");
    if (memcmp(now, c->seen, (size_t)count) != 0)
        c->changed = seconds;
    memcpy(c->seen, now, (size_t)count);
    for (int i = 0; i < count && !under_way; i++)
        under_way = now[i] == BEGUN ? &rt->program->collectives[i] : NULL;
    free(now);
    return under_way;
}

static void check_channels(Rt *rt, double seconds)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    for (int i = 0; i < c->nchannels; i++) {
        ncclResult_t status = ncclSuccess, asked = c->ncclCommGetAsyncError(c->channel[i].comm, &status);
        status = asked != ncclSuccess ? asked : status;
        if (status == ncclSuccess || status == ncclInProgress)
            continue;
        const RtCollective *at = look(rt, seconds);
        refuse(rt, &c->channel[i], at ? rt_collective_text(rt, at) : "go on", status);
    }
}

void rt_gpu_collectives_watch(Rt *rt, double seconds)
{
    enum { PER_SECOND = 4 };
    struct RtGpuCollectives *c = rt->gpu->collectives;
    if (seconds < c->looked) /* a new wait has started */
        c->looked = c->changed = 0;
    if (seconds - c->looked < 1.0 / PER_SECOND)
        return;
    c->looked = seconds;
    rt->program->comm->listen();
    check_channels(rt, seconds);
    const RtCollective *at = look(rt, seconds);
    if (seconds - c->changed > rt->waiting.timeout)
        rt_fail("%s has waited %.0f s%s%s%s: check whether the other ranks still run; --timeout SECONDS waits "
                "longer",
                rt_comm_place(rt, rt->rank), seconds - c->changed, rt_action_text(rt),
                at ? " in " : " for its GPU, outside of collectives", at ? rt_collective_text(rt, at) : "");
}
