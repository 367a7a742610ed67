/* nccl.c -- collectives through NCCL: one communicator and one stream for each group of axes, and some for
 * the messages between stages of a pipeline.
 *
 * Events order the compute stream and the collective's stream at its start and wait, without the processor.  NCCL needs
 * contiguous messages; if a tensor's part for one rank is not contiguous, message.c packs it.
 *
 * Kernels count when a collective begins and is done, so that a time-out can name it (watch.c): in the kernels that
 * pack and unpack its messages, if it has any. */
#include "nccl.h"

#include "mesh/comm.h"
#include "sizes.h"
#include "trainer/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The end of a message between two ranks. */
typedef struct {
    cudaEvent_t end;
    bool is_awaited; /* or there was none in its place yet */
} Message;

struct RtNcclEntry {
    RtNcclChannel *channel; /* NULL: others run it; of messages between two ranks, that of the first lane */
    cudaEvent_t begun, done;
    Message *message; /* message number n at n % room, until it has been waited for */
    int room;
    int64_t started;
    int64_t call;       /* the number of its last one on its channel, from 1 on */
    int64_t sent_bytes; /* by one call, to other ranks */
};

/* --- Errors of NCCL ---------------------------------------------------------------------------- */

char *rt_nccl_error(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    return rt_text("%s: NCCL cannot %s: %s%s%s", rt_comm_place(rt, rt->rank), what, c->ncclGetErrorString(status),
                   channel && channel->comm ? ": " : "",
                   channel && channel->comm ? c->ncclGetLastError(channel->comm) : "");
}

static _Noreturn void refuse(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status)
{
    rt_fail("%s", rt_nccl_error(rt, channel, what, status));
}

/* Communicators are nonblocking: waits until the operation is complete or times out. */
static void await_nccl(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status)
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

/* Its kernels go before those of products, which could leave them no room for long. */
static void open_stream(const Rt *rt, RtNcclChannel *channel)
{
    int least, greatest;
    rt_gpu_check(rt, cudaDeviceGetStreamPriorityRange(&least, &greatest), "tell its priorities");
    rt_gpu_check(rt, cudaStreamCreateWithPriority(&channel->stream, cudaStreamNonBlocking, greatest), "make a stream");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&channel->end, cudaEventDisableTiming), "make an event");
}

static void open_channel(Rt *rt, RtNcclChannel *channel, const RtGroup *group, int lane, char *workspace)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    Card own = { .version = 0 }, *cards = rt_allocate(group->count, sizeof *cards);
    channel->group = group;
    channel->lane = lane;
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
    open_stream(rt, channel);
}

/* Operations of a communicator run in the order in which they are started.  So that no message has to wait for one in
 * the other direction, those between neighbours have four communicators: from even or odd ranks, to the next or the
 * previous one.  In each of these a rank only sends or only receives.  Other messages share one. */
enum { COLLECTIVES = -1, LANES = 5, OTHER_LANE = LANES - 1 };

static int lane_of(int from, int to) { return to == from + 1 ? from % 2 : to == from - 1 ? 2 + from % 2 : OTHER_LANE; }

static bool is_needed(const RtGroup *group, int lane)
{
    return lane == lane_of(0, 1) || lane == lane_of(1, 0) || group->count > 2;
}

static RtNcclChannel *find_channel(const struct RtGpuCollectives *c, const RtGroup *group, int lane)
{
    for (int i = 0; i < c->nchannels; i++)
        if (c->channel[i].group == group && c->channel[i].lane == lane)
            return &c->channel[i];
    return NULL;
}

/* Opened if it is not open yet. */
static RtNcclChannel *channel_of(Rt *rt, const RtGroup *group, int lane, char **workspace)
{
    struct RtGpuCollectives *c = rt->gpu->collectives;
    RtNcclChannel *channel = find_channel(c, group, lane);
    if (channel)
        return channel;
    channel = &c->channel[c->nchannels++];
    open_channel(rt, channel, group, lane, *workspace);
    *workspace += lane == COLLECTIVES ? rt_gpu_group_space(rt, group) : 0;
    return channel;
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
    RtNcclEntry *entry = &all->entry[id];
    rt_gpu_check(rt, cudaEventCreateWithFlags(&entry->begun, cudaEventDisableTiming), "make an event");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&entry->done, cudaEventDisableTiming), "make an event");
    if (!group->channel) /* others run it */
        return;
    if (c->kind != RT_SEND)
        entry->channel = channel_of(rt, group, COLLECTIVES, workspace);
    for (int lane = LANES - 1; c->kind == RT_SEND && lane >= 0; lane--)
        if (is_needed(group, lane))
            entry->channel = channel_of(rt, group, lane, workspace);
    entry->sent_bytes = sent_by(c, group->count);
    rt->traffic[id].seconds = rt->traffic[id].waited = NAN; /* measured only by a trace */
}

void rt_collectives_open(Rt *rt)
{
    static const char *const names[] = { RT_NCCL_FUNCTIONS(RT_FUNCTION_NAME) };
    const RtProgram *program = rt->program;
    if (!program->comm)
        return;
    struct RtGpuCollectives *c = rt->gpu->collectives = rt_allocate(1, sizeof *c);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", false); /* of all communicators, in the order of starts: from 2.26 on */
    rt_library_load("NCCL", "libnccl.so.2", sizeof names / sizeof *names, names, c->at);
    c->entry = rt_allocate(program->ncollectives, sizeof *c->entry);
    c->channel = rt_allocate((int64_t)LANES * program->ncollectives, sizeof *c->channel);
    rt_gpu_watch_open(rt);
    char *workspace = rt_gpu_messages_open(rt, rt->gpu->message_space);
    for (int i = 0; i < program->ncollectives; i++)
        open_entry(rt, i, &workspace);
    rt_gpu_watch_start(rt);
}

/* All first come to rest, which needs the other ranks: one after another, ranks with different groups could wait for
 * each other.  NCCL also waits for recorded graphs with collectives of the communicator. */
static void close_communicators(Rt *rt)
{
    struct RtGpuCollectives *c = rt->gpu->collectives;
    ncclResult_t *status = rt_allocate(c->nchannels, sizeof *status);
    rt_gpu_graphs_close(rt);
    for (int i = 0; i < c->nchannels; i++)
        status[i] = c->ncclCommFinalize(c->channel[i].comm);
    for (int i = 0; i < c->nchannels; i++) {
        await_nccl(rt, &c->channel[i], "come to rest", status[i]);
        c->ncclCommDestroy(c->channel[i].comm);
        c->channel[i].comm = NULL;
    }
    free(status);
}

void rt_collectives_close(Rt *rt)
{
    struct RtGpuCollectives *c = rt->gpu->collectives;
    if (!c)
        return;
    rt_gpu_watch_close(rt);
    close_communicators(rt);
    for (int i = 0; i < rt->program->ncollectives; i++) {
        rt_gpu_check(rt, cudaEventDestroy(c->entry[i].begun), "drop an event");
        rt_gpu_check(rt, cudaEventDestroy(c->entry[i].done), "drop an event");
        for (int k = 0; k < c->entry[i].room; k++)
            rt_gpu_check(rt, cudaEventDestroy(c->entry[i].message[k].end), "drop an event");
        free(c->entry[i].message);
    }
    for (int i = 0; i < c->nchannels; i++) {
        RtNcclChannel *channel = &c->channel[i];
        rt_gpu_check(rt, cudaEventDestroy(channel->end), "drop an event");
        rt_gpu_check(rt, cudaStreamDestroy(channel->stream), "drop a stream");
    }
    rt_gpu_messages_close(rt);
    free(c->entry);
    free(c->channel);
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
static ncclResult_t swap_messages(const struct RtGpuCollectives *all, const RtNcclChannel *channel, const char *to,
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

static ncclResult_t send_piece(const struct RtGpuCollectives *all, const RtCollective *c, const RtNcclChannel *channel,
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

/* Queues a whole collective on the channel's stream; false if no kernel has counted its end.  NCCL runs the calls of a
 * group at the same time, but the memory plan has its pieces one after the other: where one writes over what another
 * has read before, a new group begins. */
static bool enqueue(Rt *rt, int id, const RtNcclChannel *channel, const void *const in[], void *const out[])
{
    const struct RtGpuCollectives *all = rt->gpu->collectives;
    const RtCollective *c = &rt->program->collectives[id];
    char **to = rt_allocate(c->npieces, sizeof *to), **from = rt_allocate(c->npieces, sizeof *from);
    if (!rt_gpu_pack(rt, id, channel->stream, channel->workspace, in, to, rt_gpu_count(rt, id, false)))
        rt_gpu_note(rt, rt_gpu_count(rt, id, false), channel->stream);
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
    free(to);
    free(from);
    return rt_gpu_unpack(rt, id, channel->stream, channel->workspace, out, rt_gpu_count(rt, id, true));
}

/* --- Interface for generated code ------------------------------------------------------------------- */

/* While tracing: now, on the stream of a channel. */
static double mark_of(Rt *rt, const RtNcclChannel *channel)
{
    return rt_tracing ? rt_gpu_mark(rt, channel->stream) : 0;
}

/* What is next on the channel's stream runs after what the compute stream has to do. */
static double begin(Rt *rt, int id, const RtNcclChannel *channel)
{
    const RtNcclEntry *entry = &rt->gpu->collectives->entry[id];
    rt_gpu_check(rt, cudaEventRecord(entry->begun, rt->gpu->compute), "record an event");
    rt_gpu_check(rt, cudaStreamWaitEvent(channel->stream, entry->begun, 0), "wait for an event");
    return mark_of(rt, channel);
}

static void count_traffic(Rt *rt, int id, int64_t sent_bytes)
{
    rt->traffic[id].calls++;
    rt->traffic[id].sent_bytes += sent_bytes;
}

/* Its end is counted after the event, for which the computation waits. */
void rt_collective_start(Rt *rt, int id, const void *const in[], void *const out[])
{
    RtNcclEntry *entry = &rt->gpu->collectives->entry[id];
    RtNcclChannel *channel = entry->channel;
    const double begun = begin(rt, id, channel);
    const bool is_counted = enqueue(rt, id, channel, in, out);
    rt_gpu_check(rt, cudaEventRecord(entry->done, channel->stream), "record an event");
    if (!is_counted)
        rt_gpu_note(rt, rt_gpu_count(rt, id, true), channel->stream);
    entry->call = ++channel->calls;
    count_traffic(rt, id, entry->sent_bytes);
    if (rt_tracing)
        rt_trace_span(rt, rt->program->nkernels + id, true, begun, mark_of(rt, channel));
}

/* What has been joined was perhaps started beside the graph that is being recorded, which knows nothing of it. */
void rt_collective_wait(Rt *rt, int id)
{
    const RtNcclEntry *entry = &rt->gpu->collectives->entry[id];
    if (entry->channel && entry->call > entry->channel->joined)
        rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, entry->done, 0), "wait for an event");
}

void rt_collective(Rt *rt, int id, const void *const in[], void *const out[])
{
    rt_collective_start(rt, id, in, out);
    rt_collective_wait(rt, id);
}

/* Doubles the room for messages that have not been waited for. */
static void make_room(const Rt *rt, RtNcclEntry *entry)
{
    enum { FIRST = 16 };
    const int room = entry->room ? 2 * entry->room : FIRST;
    Message *grown = rt_allocate(room, sizeof *grown);
    for (int64_t number = entry->started - entry->room; number < entry->started; number++)
        grown[number % room] = entry->message[number % entry->room];
    for (int64_t number = entry->started; number < entry->started + room - entry->room; number++) {
        grown[number % room].is_awaited = true;
        rt_gpu_check(rt, cudaEventCreateWithFlags(&grown[number % room].end, cudaEventDisableTiming), "make an event");
    }
    free(entry->message);
    entry->message = grown;
    entry->room = room;
}

/* A message: its end is an event of its own, since others of the collective may start before it is waited for. */
static int64_t start_message(Rt *rt, int id, int other, const void *sent, void *received)
{
    const struct RtGpuCollectives *all = rt->gpu->collectives;
    RtNcclEntry *entry = &all->entry[id];
    const RtGroup *group = entry->channel->group;
    RtNcclChannel *channel = find_channel(all, group, sent ? lane_of(group->own, other) : lane_of(other, group->own));
    const size_t bytes = (size_t)rt_message_bytes(&rt->program->collectives[id]);
    const double begun = begin(rt, id, channel);
    rt_gpu_note(rt, rt_gpu_count(rt, id, false), channel->stream);
    await_nccl(rt, channel, sent ? "send" : "receive",
               sent ? all->ncclSend(sent, bytes, ncclUint8, other, channel->comm, channel->stream)
                    : all->ncclRecv(received, bytes, ncclUint8, other, channel->comm, channel->stream));
    if (entry->room == 0 || !entry->message[entry->started % entry->room].is_awaited)
        make_room(rt, entry);
    Message *message = &entry->message[entry->started % entry->room];
    message->is_awaited = false;
    rt_gpu_check(rt, cudaEventRecord(message->end, channel->stream), "record an event");
    rt_gpu_note(rt, rt_gpu_count(rt, id, true), channel->stream);
    channel->calls++;
    count_traffic(rt, id, sent ? (int64_t)bytes : 0);
    if (rt_tracing) {
        double *times = rt_trace_message(rt, id, entry->started, other, sent != NULL);
        times[0] = begun;
        times[1] = mark_of(rt, channel);
    }
    return entry->started++;
}

/* The coordinate on its only axis is the number of a member of its group. */
int64_t rt_send_start(Rt *rt, int id, int to, const void *data) { return start_message(rt, id, to, data, NULL); }

int64_t rt_receive_start(Rt *rt, int id, int from, void *data) { return start_message(rt, id, from, NULL, data); }

void rt_message_wait(Rt *rt, int id, int64_t number)
{
    const RtNcclEntry *entry = &rt->gpu->collectives->entry[id];
    Message *message = &entry->message[number % entry->room];
    const double from = rt_tracing ? rt_mark(rt) : 0;
    rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, message->end, 0), "wait for an event");
    message->is_awaited = true;
    if (rt_tracing)
        rt_trace_message_wait(rt, id, number, from, rt_mark(rt));
}

void rt_send(Rt *rt, int id, int to, const void *data) { rt_message_wait(rt, id, rt_send_start(rt, id, to, data)); }

void rt_receive(Rt *rt, int id, int from, void *data) { rt_message_wait(rt, id, rt_receive_start(rt, id, from, data)); }

/* Is it the channel of one of these collectives? */
static bool is_used(const Rt *rt, const RtNcclChannel *channel, const RtTraffic *used)
{
    for (int i = 0; i < rt->program->ncollectives; i++)
        if (used[i].calls && rt->gpu->collectives->entry[i].channel == channel)
            return true;
    return false;
}

void rt_gpu_collectives_join(Rt *rt, const RtTraffic *used)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    for (int i = 0; c && i < c->nchannels; i++) {
        RtNcclChannel *channel = &c->channel[i];
        if (channel->joined == channel->calls || (used && !is_used(rt, channel, used)))
            continue;
        rt_gpu_check(rt, cudaEventRecord(channel->end, channel->stream), "record an event");
        rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, channel->end, 0), "wait for an event");
        channel->joined = channel->calls;
    }
}
