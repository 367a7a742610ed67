/* nccl_open.c -- the communicators of NCCL: one communicator and one stream for each group of axes, and some for the
 * messages between stages of a pipeline.
 *
 * NCCL takes memory for them, which no plan knows.  So they are formed, and their ranks connected, before the arena is
 * allocated: what they have taken is measured for each, and nothing is taken later. */
#include "nccl.h"

#include "mesh/comm.h"
#include "sizes.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* --- Errors of NCCL ---------------------------------------------------------------------------- */

char *rt_nccl_error(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    return rt_text("%s: NCCL cannot %s: %s%s%s", rt_comm_place(rt, rt->rank), what, c->ncclGetErrorString(status),
                   channel && channel->comm ? ": " : "",
                   channel && channel->comm ? c->ncclGetLastError(channel->comm) : "");
}

_Noreturn void rt_nccl_refuse(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status)
{
    rt_fail("%s", rt_nccl_error(rt, channel, what, status));
}

/* Between two looks at an operation: first at once, since a collective is queued in microseconds. */
static void rest(const Rt *rt, const char *what, double begin)
{
    const double waited = rt_seconds() - begin;
    if (waited > rt->waiting.timeout)
        rt_fail("%s has waited %.0f s for other ranks to %s with NCCL: check whether all still run; "
                "--timeout SECONDS waits longer",
                rt_comm_place(rt, rt->rank), waited, what);
    if (waited > 1e-3)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

void rt_nccl_await(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    for (double begin = rt_seconds(); status == ncclInProgress;) {
        ncclResult_t asked = c->ncclCommGetAsyncError(channel->comm, &status);
        if (asked != ncclSuccess)
            status = asked;
        if (status == ncclInProgress)
            rest(rt, what, begin);
    }
    if (status != ncclSuccess)
        rt_nccl_refuse(rt, channel, what, status);
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
    rt_exchange_messages(rt, group, NULL, to, from);
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
        rt_nccl_await(rt, channel, "make an id", c->ncclGetUniqueId(&own.id));
    exchange_cards(rt, group, &own, cards);
    check_versions(rt, group, cards);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    rt_nccl_await(rt, channel, "form a group",
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

RtNcclChannel *rt_nccl_lane(const Rt *rt, const RtGroup *group, int from, int to)
{
    return find_channel(rt->gpu->collectives, group, lane_of(from, to));
}

/* --- Connections between two ranks -------------------------------------------------------------- */

/* Does the program send messages from one to the other on this channel?  Of the last lane only the schedule knows. */
static bool is_sent(const Rt *rt, const RtNcclChannel *channel, int from, int to)
{
    if (channel->lane != COLLECTIVES)
        return channel->lane != OTHER_LANE && channel->lane == lane_of(from, to);
    for (int i = 0; i < rt->program->ncollectives; i++) {
        const RtCollective *c = &rt->program->collectives[i];
        if (rt_comm_group(rt, c) != channel->group)
            continue;
        if (c->kind == RT_ALL_TO_ALL || (c->kind == RT_ROTATE && (to + c->turn) % channel->group->count == from))
            return true;
    }
    return false;
}

static void await_stream(const Rt *rt, const RtNcclChannel *channel, const char *what)
{
    cudaError_t status = cudaErrorNotReady;
    for (double begin = rt_seconds(); status == cudaErrorNotReady;) {
        ncclResult_t error = ncclSuccess;
        rt->gpu->collectives->ncclCommGetAsyncError(channel->comm, &error);
        rt_nccl_await(rt, channel, what, error);
        status = cudaStreamQuery(channel->stream);
        if (status == cudaErrorNotReady)
            rest(rt, what, begin);
    }
    rt_gpu_check(rt, status, what);
}

/* NCCL connects two ranks, and takes memory for that, at their first message: here, one of a byte. */
static void connect_ranks(const Rt *rt, const RtNcclChannel *channel)
{
    const struct RtGpuCollectives *all = rt->gpu->collectives;
    const int n = channel->group->count, own = channel->group->own;
    char *to = rt->gpu->product_space, *from = to + n;
    ncclResult_t status = all->ncclGroupStart();
    for (int q = 0; q < n; q++) {
        if (rt_nccl_is_taken(status) && is_sent(rt, channel, own, q))
            status = all->ncclSend(to + q, 1, ncclUint8, q, channel->comm, channel->stream);
        if (rt_nccl_is_taken(status) && is_sent(rt, channel, q, own))
            status = all->ncclRecv(from + q, 1, ncclUint8, q, channel->comm, channel->stream);
    }
    if (!rt_nccl_is_taken(status))
        rt_nccl_refuse(rt, channel, "connect", status);
    rt_nccl_await(rt, channel, "connect", all->ncclGroupEnd());
    await_stream(rt, channel, "connect");
}

/* --- Channels ------------------------------------------------------------------------------------- */

/* Ranks that share a GPU do not know which of them has taken what. */
static int64_t taken_since(const Rt *rt, size_t before)
{
    const size_t now = rt_gpu_unused(rt);
    return rt->gpu->options.share_gpu || now > before ? 0 : (int64_t)(before - now);
}

/* Opened if it is not open yet. */
static RtNcclChannel *channel_of(Rt *rt, const RtGroup *group, int lane, char **workspace)
{
    struct RtGpuCollectives *c = rt->gpu->collectives;
    RtNcclChannel *channel = find_channel(c, group, lane);
    if (channel)
        return channel;
    const size_t before = rt_gpu_unused(rt);
    channel = &c->channel[c->nchannels++];
    open_channel(rt, channel, group, lane, *workspace);
    connect_ranks(rt, channel);
    channel->taken = taken_since(rt, before);
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
    setenv("NCCL_RUNTIME_CONNECT", "0", false);       /* ranks of collectives connect when a communicator is formed */
    rt_library_load("NCCL", "libnccl.so.2", sizeof names / sizeof *names, names, c->at);
    c->entry = rt_allocate(program->ncollectives, sizeof *c->entry);
    c->channel = rt_allocate((int64_t)LANES * program->ncollectives, sizeof *c->channel);
    rt_gpu_watch_open(rt);
    char *workspace = rt_gpu_messages_open(rt, rt->gpu->message_space);
    for (int i = 0; i < program->ncollectives; i++)
        open_entry(rt, i, &workspace);
    rt_gpu_watch_start(rt);
}

/* What the channels of a group have taken; 0 if that of a lower number is one of them. */
static int64_t taken_by_group(const struct RtGpuCollectives *c, int first)
{
    const RtGroup *group = c->channel[first].group;
    int64_t bytes = 0;
    for (int i = 0; i < c->nchannels; i++) {
        if (c->channel[i].group == group && i < first)
            return 0;
        bytes += c->channel[i].group == group ? c->channel[i].taken : 0;
    }
    return bytes;
}

char *rt_collectives_taken(const Rt *rt)
{
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    double all = 0;
    char *groups = rt_text("%s", "");
    for (int i = 0; c && i < c->nchannels; i++) {
        const RtGroup *group = c->channel[i].group;
        const double taken = (double)taken_by_group(c, i);
        char *axes = rt_axes_text(rt, group->naxes, group->axis);
        if (taken > 0)
            rt_append(&groups, "%s%s over %s", *groups ? ", " : "", rt_bytes_text(taken).text, axes);
        all += taken;
        free(axes);
    }
    char *text = all > 0 ? rt_text("%s by NCCL (%s)", rt_bytes_text(all).text, groups) : NULL;
    free(groups);
    return text;
}

/* All first come to rest, which needs the other ranks: one after another, ranks with different groups could wait for
 * each other.  NCCL also waits for recorded graphs with collectives of the communicator. */
static void close_communicators(Rt *rt)
{
    struct RtGpuCollectives *c = rt->gpu->collectives;
    ncclResult_t *status = rt_allocate(c->nchannels, sizeof *status);
    rt_gpu_graphs_close(rt);
    rt_nccl_memory_release(rt);
    for (int i = 0; i < c->nchannels; i++)
        status[i] = c->ncclCommFinalize(c->channel[i].comm);
    for (int i = 0; i < c->nchannels; i++) {
        rt_nccl_await(rt, &c->channel[i], "come to rest", status[i]);
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
