/* nccl.c -- collectives through NCCL, on the channels that nccl_open.c has opened.
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

#include <stdlib.h>

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

/* Every rank sends one message to each, and receives one from each; in a rotation to and from one only. */
static ncclResult_t swap_messages(const struct RtGpuCollectives *all, const RtNcclChannel *channel, const char *to,
                                  char *from, int64_t count, const RtCollective *c)
{
    const int n = channel->group->count, own = channel->group->own;
    const bool rotates = c->kind == RT_ROTATE;
    ncclResult_t status = ncclSuccess;
    int64_t bytes = rotates ? 0 : count * rt_type_bytes(c->type);
    for (int q = 0; q < n && rt_nccl_is_taken(status); q++) {
        if (!rotates || (q + c->turn) % n == own)
            status = all->ncclSend(to + q * bytes, (size_t)count, type_of(c->type), q, channel->comm, channel->stream);
        if (rt_nccl_is_taken(status) && (!rotates || (own + c->turn) % n == q))
            status =
                all->ncclRecv(from + q * bytes, (size_t)count, type_of(c->type), q, channel->comm, channel->stream);
    }
    return status;
}

/* Gathers or scatters a tensor of whose slots one row is contiguous: in rows, if there are several. */
static ncclResult_t send_slots(const struct RtGpuCollectives *all, const RtCollective *c, const RtNcclChannel *channel,
                               RtSlots slots, const char *to, char *from)
{
    const int64_t ranks = channel->group->count, part = slots.run * rt_type_bytes(c->type);
    const bool gathers = c->kind == RT_ALL_GATHER, by_rows = rt_goes_by_rows(c->kind, c->type, slots, ranks);
    const int64_t rows = by_rows ? slots.rows : 1, count = by_rows ? slots.run : slots.rows * slots.run;
    ncclResult_t status = ncclSuccess;
    for (int64_t row = 0; row < rows && rt_nccl_is_taken(status); row++) {
        const char *in = to + row * part * (gathers ? 1 : ranks);
        char *out = from + row * part * (gathers ? ranks : 1);
        status = gathers ? all->ncclAllGather(in, out, (size_t)count, type_of(c->type), channel->comm, channel->stream)
                         : all->ncclReduceScatter(in, out, (size_t)count, type_of(c->type),
                                                  c->maximum ? ncclMax : ncclSum, channel->comm, channel->stream);
    }
    return status;
}

static ncclResult_t send_piece(const struct RtGpuCollectives *all, const RtCollective *c, const RtNcclChannel *channel,
                               const RtPiece *piece, char *to, char *from)
{
    RtSlots sent = rt_sent_slots(c->kind, piece);
    size_t count = (size_t)(sent.rows * sent.run);
    switch (c->kind) {
    case RT_ALL_REDUCE:
        return all->ncclAllReduce(to, from, count, type_of(c->type), c->maximum ? ncclMax : ncclSum, channel->comm,
                                  channel->stream);
    case RT_ALL_GATHER:
        return send_slots(all, c, channel, rt_received_slots(c->kind, piece), to, from);
    case RT_REDUCE_SCATTER:
        return send_slots(all, c, channel, sent, to, from);
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
    for (int i = 0, first = 0; i < c->npieces && rt_nccl_is_taken(status); i++) {
        if (rt_gpu_writes_over(c, channel->group->count, first, i, to, from)) {
            rt_nccl_await(rt, channel, "begin a collective", all->ncclGroupEnd());
            all->ncclGroupStart();
            first = i;
        }
        status = send_piece(all, c, channel, &c->piece[i], to[i], from[i]);
    }
    if (!rt_nccl_is_taken(status))
        rt_nccl_refuse(rt, channel, rt_collective_text(rt, c), status);
    rt_nccl_await(rt, channel, "begin a collective", all->ncclGroupEnd());
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
    RtNcclMessage *grown = rt_allocate(room, sizeof *grown);
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
    RtNcclChannel *channel =
        sent ? rt_nccl_lane(rt, group, group->own, other) : rt_nccl_lane(rt, group, other, group->own);
    const size_t bytes = (size_t)rt_message_bytes(&rt->program->collectives[id]);
    const double begun = begin(rt, id, channel);
    rt_gpu_note(rt, rt_gpu_count(rt, id, false), channel->stream);
    rt_nccl_await(rt, channel, sent ? "send" : "receive",
                  sent ? all->ncclSend(sent, bytes, ncclUint8, other, channel->comm, channel->stream)
                       : all->ncclRecv(received, bytes, ncclUint8, other, channel->comm, channel->stream));
    if (entry->room == 0 || !entry->message[entry->started % entry->room].is_awaited)
        make_room(rt, entry);
    RtNcclMessage *message = &entry->message[entry->started % entry->room];
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
    RtNcclMessage *message = &entry->message[number % entry->room];
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
