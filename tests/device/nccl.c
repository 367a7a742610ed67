/* nccl.c -- replaces libnccl.so: messages of a rank are files, for which the others wait.
 *
 * The calls of a group are one piece of work of their stream; a send or receive outside of groups is one by itself.  It
 * writes this rank's messages once, and is complete when those for it have been written, and those from it to one rank
 * taken; until then the scheduler continues with other streams.  Mismatched operations are reported.  Sums are in f32,
 * in the order of ranks.
 *
 * Communicators are non-blocking: a call may say that it is in progress, which here every other one of a group does,
 * and each end of a group until it is asked.
 *
 * Memory that is registered with a communicator must be NCCL's, and collectives of it must be at the same offsets on
 * all ranks. */
#include "nccl_call.h"
#include "nccl_file.h"

#include <string.h>
#include <unistd.h>

enum { MAX_CALLS = 1024 };

typedef struct {
    ncclComm_t comm; /* first: see emulated_is_recorded */
    bool has_given, has_taken, is_held_up;
    int count;
    Call call[MAX_CALLS];
} Group;

static Group group; /* that is being put together */
static cudaStream_t group_stream;
static int depth;
static ncclComm_t comms;

/* --- Files ------------------------------------------------------------------------------------ */

static void path_of(const ncclComm_t comm, int64_t number, int from, int to, char path[256])
{
    if (to < 0)
        snprintf(path, 256, "%s-%lld-%d", comm->path, (long long)number, from);
    else
        snprintf(path, 256, "%s-%lld-%d-%d", comm->path, (long long)number, from, to);
}

/* --- Start ------------------------------------------------------------------------------------ */

ncclResult_t ncclGetVersion(int *version)
{
    *version = (int)emulated_number("EMULATED_NCCL", NCCL_VERSION_CODE);
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int count;
    const char *folder = getenv("EMULATED_MESSAGES");
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%s/mpc-nccl-%ld-%d", folder ? folder : "/dev/shm", (long)getpid(),
             count++);
    return ncclSuccess;
}

static void at_exit(void);

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    if (ranks > MAX_RANKS || config->blocking != 0)
        return ncclInvalidArgument;
    *comm = calloc(1, sizeof **comm);
    if (!comms)
        atexit(at_exit);
    (*comm)->next = comms;
    comms = *comm;
    (*comm)->opened_by = pthread_self();
    (*comm)->rank = rank;
    (*comm)->ranks = ranks;
    snprintf((*comm)->path, sizeof(*comm)->path, "%s", id.internal);
    struct cudaDeviceProp gpu;
    char path[256], host[64] = "", *said = getenv("NCCL_HOSTID");
    int device;
    gethostname(host, sizeof host - 1);
    cudaGetDevice(&device);
    cudaGetDeviceProperties(&gpu, device);
    const bool by_host = emulated_number("EMULATED_NCCL", NCCL_VERSION_CODE) < NCCL_VERSION(2, 30, 0) ||
                         emulated_number("NCCL_MULTI_RANK_GPU_ENABLE", 0);
    snprintf((*comm)->place, sizeof(*comm)->place, "gpu %d of %.40s", gpu.uuid.bytes[0],
             !by_host ? "any machine"
             : said   ? said
                      : host);
    path_of(*comm, 0, rank, -1, path);
    give(path, (*comm)->place, strlen((*comm)->place));
    ncclResult_t status = ncclSuccess;
    if (emulated_number("NCCL_RUNTIME_CONNECT", 1) == 0)
        status = connect(&(*comm)->connections, ranks, ALL_OF_THEM);
    return status == ncclSuccess ? ncclInProgress : status;
}

/* NCCL identifies machines by name or by NCCL_HOSTID, and requires separate GPUs for ranks of one machine; from 2.30 on
 * for all ranks, unless NCCL_MULTI_RANK_GPU_ENABLE is set. */
static bool has_our_gpu(const ncclComm_t comm, int rank)
{
    char path[256];
    size_t bytes;
    path_of(comm, 0, rank, -1, path);
    char *place = taken(path, &bytes);
    bool same = rank != comm->rank && bytes == strlen(comm->place) && memcmp(place, comm->place, bytes) == 0;
    free(place);
    return same;
}

static bool is_broken(void)
{
    static atomic_llong count;
    const int64_t broken = emulated_number("EMULATED_BREAK", 0);
    return broken && ++count >= broken;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *status)
{
    *status = ncclSuccess;
    if (!pthread_equal(comm->opened_by, pthread_self())) {
        *status = is_broken() ? ncclRemoteError : ncclSuccess;
        return ncclSuccess;
    }
    if (comm->is_busy) {
        comm->is_busy = false;
        return ncclSuccess;
    }
    for (int rank = 0; rank < comm->ranks && !comm->is_open; rank++) {
        char path[256];
        path_of(comm, 0, rank, -1, path);
        if (access(path, F_OK) != 0)
            *status = ncclInProgress;
        else if (has_our_gpu(comm, rank))
            return ncclInvalidUsage;
    }
    comm->is_open = *status == ncclSuccess;
    if (comm->is_open && is_broken())
        *status = ncclRemoteError;
    return ncclSuccess;
}

/* --- End ---------------------------------------------------------------------------------------- */

static bool work_group(void *data);

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (emulated_is_recorded(work_group, comm))
        emulated_fault("NCCL waits for ever: a graph that uses the communicator has not been dropped");
    if (comm->registered.at)
        emulated_fault("a communicator comes to rest, and memory is registered with it");
    comm->is_finalized = comm->is_busy = true;
    return ncclInProgress;
}

/* Files of the last groups are left: others may still read them. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm->is_finalized || comm->is_busy)
        emulated_fault("a communicator is destroyed before it has come to rest");
    ncclComm_t *at = &comms;
    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
    disconnect(&comm->connections);
    free(comm);
    return ncclSuccess;
}

/* In any thread. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    FILE *out = getenv("EMULATED_ABORTED") ? fopen(getenv("EMULATED_ABORTED"), "a") : NULL;
    if (out && (fprintf(out, "%d of %d\n", comm->rank, comm->ranks) < 0 || fclose(out) != 0))
        emulated_fault("$EMULATED_ABORTED cannot be written");
    comm->is_aborted = true;
    return ncclSuccess;
}

static int64_t held_up;

static void write_held_up(void)
{
    FILE *out = getenv("EMULATED_HELD_UP") ? fopen(getenv("EMULATED_HELD_UP"), "w") : NULL;
    if (out && (fprintf(out, "%lld\n", (long long)held_up) < 0 || fclose(out) != 0))
        emulated_fault("$EMULATED_HELD_UP cannot be written");
}

/* CUDA ends when its kernels have. */
static void at_exit(void)
{
    for (ncclComm_t comm = comms; comm; comm = comm->next)
        if (comm->is_live && !comm->is_aborted)
            emulated_fault("the process waits for ever: a kernel of NCCL waits for other ranks");
    write_held_up();
}

const char *ncclGetErrorString(ncclResult_t status)
{
    return status == ncclInvalidUsage ? "invalid usage" : "emulated NCCL: an error";
}

const char *ncclGetLastError(ncclComm_t comm) { return ""; }

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *at, size_t bytes, void **handle)
{
    *handle = at;
    comm->is_busy = true;
    return register_memory(&comm->registered, at, bytes, comm->rank, comm->ranks);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    comm->is_busy = true;
    return release_memory(&comm->registered, handle);
}

/* --- Giving ------------------------------------------------------------------------------------ */

/* Appends a description of each call, then its data. */
static char *add_call(const ncclComm_t comm, const Call *c, char *all, size_t *bytes)
{
    size_t more = given_bytes(comm, c);
    int64_t what[FACTS];
    facts_of(comm, c, what);
    all = realloc(all, *bytes + sizeof what + more);
    memcpy(all + *bytes, what, sizeof what);
    memcpy(all + *bytes + sizeof what, c->from, more);
    *bytes += sizeof what + more;
    return all;
}

/* Is a call one of all ranks, for -1, or a message to or from the peer? */
static bool concerns(const Call *c, Kind kind, int peer)
{
    return peer < 0 ? c->kind < SEND : c->kind == kind && c->peer == peer;
}

static bool has_calls(const Group *g, Kind kind, int peer)
{
    for (int i = 0; i < g->count; i++)
        if (concerns(&g->call[i], kind, peer))
            return true;
    return false;
}

static bool has_calls_of(const Group *g, Kind kind)
{
    for (int i = 0; i < g->count; i++)
        if (g->call[i].kind == kind)
            return true;
    return false;
}

static void give_all(const Group *g)
{
    ncclComm_t comm = g->comm;
    for (int to = -1; to < comm->ranks; to++) {
        char *all = NULL, path[256];
        size_t bytes = 0;
        if (!has_calls(g, SEND, to))
            continue;
        for (int i = 0; i < g->count; i++)
            if (concerns(&g->call[i], SEND, to))
                all = add_call(comm, &g->call[i], all, &bytes);
        path_of(comm, to < 0 ? ++comm->groups : ++comm->sent[to], comm->rank, to, path);
        give(path, all, bytes);
        free(all);
    }
}

/* Are the messages to single ranks gone?  A real send may have to wait for its receiver, too. */
static bool are_taken(const Group *g)
{
    char path[256];
    for (int to = 0; to < g->comm->ranks; to++) {
        path_of(g->comm, g->comm->sent[to], g->comm->rank, to, path);
        if (has_calls(g, SEND, to) && access(path, F_OK) == 0)
            return false;
    }
    return true;
}

/* --- Taking ------------------------------------------------------------------------------------- */

typedef struct {
    char *data; /* NULL: nothing is expected */
    size_t bytes, at;
} Message;

/* The next part of a message, which must match the call. */
static const char *next_part(const Group *g, Message *message, const Call *c, int rank)
{
    int64_t what[FACTS], own[FACTS];
    facts_of(g->comm, c, own);
    if (c->kind == RECV)
        own[0] = SEND;
    size_t bytes = given_bytes(g->comm, c);
    if (message->at + sizeof what + bytes > message->bytes)
        emulated_fault("rank %d of a group gives less than rank %d takes", rank, g->comm->rank);
    memcpy(what, message->data + message->at, sizeof what);
    if (what[4] != own[4] || what[5] != own[5])
        emulated_fault(
            "ranks %d and %d of a group have registered memory at other offsets: %lld and %lld, %lld and %lld",
            g->comm->rank, rank, (long long)own[4], (long long)what[4], (long long)own[5], (long long)what[5]);
    if (memcmp(what, own, sizeof what) != 0)
        emulated_fault("ranks %d and %d of a group do other things: kind %lld and %lld, of %lld and %lld",
                       g->comm->rank, rank, (long long)own[0], (long long)what[0], (long long)own[1],
                       (long long)what[1]);
    const char *part = message->data + message->at + sizeof what;
    message->at += sizeof what + bytes;
    return part;
}

static void take_all(const Group *g, Message *common, Message *own)
{
    int ranks = g->comm->ranks, rank = g->comm->rank;
    for (int i = 0; i < g->count; i++) {
        const Call *c = &g->call[i];
        const char *parts[MAX_RANKS];
        if (c->kind == SEND)
            continue;
        if (c->kind == RECV) {
            memcpy(c->to, next_part(g, &own[c->peer], c, c->peer), given_bytes(g->comm, c));
            continue;
        }
        for (int q = 0; q < ranks; q++)
            parts[q] = next_part(g, &common[q], c, q);
        if (c->kind == ALL_GATHER)
            for (int q = 0; q < ranks; q++)
                memcpy(c->to + (size_t)q * given_bytes(g->comm, c), parts[q], given_bytes(g->comm, c));
        else
            for (int64_t k = 0; k < c->count; k++)
                combine(c->type, c->op, ranks, parts, c->kind == REDUCE_SCATTER ? rank * c->count + k : k, c->to, k);
    }
}

/* Have all others written their messages?  Reads all or nothing. */
static bool find_all(const Group *g, Message *common, Message *own)
{
    ncclComm_t comm = g->comm;
    bool all = true;
    for (int q = 0; q < comm->ranks && all; q++) {
        char path[256];
        path_of(comm, comm->groups, q, -1, path);
        if (has_calls(g, SEND, -1))
            all = (common[q].data = taken(path, &common[q].bytes)) != NULL;
        path_of(comm, comm->received[q] + 1, q, comm->rank, path);
        if (has_calls(g, RECV, q) && all)
            all = (own[q].data = taken(path, &own[q].bytes)) != NULL;
    }
    return all;
}

/* Messages for this rank alone; and its own to all of the group before: a rank that has written those of this group has
 * read them. */
static void clear(const Group *g)
{
    ncclComm_t comm = g->comm;
    char path[256];
    for (int from = 0; from < comm->ranks; from++)
        if (has_calls(g, RECV, from)) {
            path_of(comm, ++comm->received[from], from, comm->rank, path);
            unlink(path);
        }
    path_of(comm, comm->groups - 1, comm->rank, -1, path);
    if (has_calls(g, SEND, -1) && comm->groups > 1)
        unlink(path);
}

static bool is_of_sends(const void *data) { return has_calls_of(data, SEND); }

static void note_held_up(Group *g)
{
    g->is_held_up |= has_calls_of(g, RECV) && !has_calls_of(g, SEND) && emulated_holds_up(g, work_group, is_of_sends);
}

static bool work_group(void *data)
{
    Group *g = data;
    Message common[MAX_RANKS] = { { 0 } }, own[MAX_RANKS] = { { 0 } };
    if (!g->comm->is_aborted && emulated_number("EMULATED_SERIAL", 0) && !emulated_is_next(g, work_group))
        return false;
    g->comm->is_live = true;
    static int64_t count;
    while (!g->has_given && count + 1 == emulated_number("EMULATED_STOP", 0))
        sleep(1);
    count += !g->has_given;
    if (!g->has_given)
        give_all(g);
    g->has_given = true;
    if (!g->has_taken && find_all(g, common, own)) {
        take_all(g, common, own);
        clear(g);
        g->has_taken = true;
    }
    for (int q = 0; q < g->comm->ranks; q++)
        free(common[q].data), free(own[q].data);
    const bool ends = (g->has_taken && are_taken(g)) || g->comm->is_aborted;
    g->comm->is_live = !ends;
    if (ends)
        held_up += g->is_held_up;
    else
        note_held_up(g);
    return ends;
}

/* --- Calls --------------------------------------------------------------------------------------- */

static bool are_apart(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a_bytes == 0 || b_bytes == 0 || a + a_bytes <= b || b + b_bytes <= a;
}

/* It reads and writes at the same time: nothing is written where another call reads, nor the same one, but in place. */
static void check_places(const Group *g)
{
    for (const Call *to = g->call; to < g->call + g->count; to++)
        for (const Call *from = g->call; from < g->call + g->count; from++) {
            const size_t each = (size_t)to->count * element_bytes(to->type);
            const size_t written = to->kind == SEND ? 0 : each * (to->kind == ALL_GATHER ? (size_t)g->comm->ranks : 1);
            const size_t read = from->kind == RECV ? 0 : given_bytes(g->comm, from);
            if (!are_apart(to->to, written, from->from, read) && (to != from || !is_in_place(g->comm, to)))
                emulated_fault("NCCL writes %zu bytes to %p, where it reads %zu from %p", written, (void *)to->to, read,
                               (const void *)from->from);
        }
}

static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Call call)
{
    bool adds = call.kind == ALL_REDUCE || call.kind == REDUCE_SCATTER;
    if (adds && call.type == ncclUint8)
        emulated_fault("truth values do not add up");
    const bool is_alone = depth == 0 && call.kind >= SEND;
    if (is_alone)
        ncclGroupStart();
    if (depth == 0 || group.count == MAX_CALLS || (group.count && (group.comm != comm || group_stream != stream)))
        emulated_fault("calls of NCCL stand in groups of one communicator here");
    if (comm->is_busy || comm->is_finalized)
        emulated_fault("a communicator is used while its last calls are in progress, or after its end");
    ncclResult_t status = connect(&comm->connections, comm->ranks, call.kind >= SEND ? call.peer : ALL_OF_THEM);
    if (status != ncclSuccess)
        return status;
    group.comm = comm;
    group_stream = stream;
    group.call[group.count++] = call;
    return is_alone ? ncclGroupEnd() : group.count % 2 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    if (depth++ == 0)
        group.count = 0;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (--depth > 0 || !group.count)
        return ncclSuccess;
    check_places(&group);
    if (!emulated_is_urgent(group_stream))
        emulated_fault("a collective is on a stream without priority: it waits for kernels of products");
    emulated_enqueue(group_stream, work_group, &group,
                     offsetof(Group, call) + (size_t)group.count * sizeof *group.call);
    static int64_t count;
    if (++count == emulated_number("EMULATED_SWAP", 0))
        emulated_postpone(group_stream);
    group.comm->is_busy = true;
    return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, (Call){ ALL_REDUCE, from, to, (int64_t)count, type, op, 0 });
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return add(comm, stream, (Call){ ALL_GATHER, from, to, (int64_t)count, type, 0, 0 });
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, (Call){ REDUCE_SCATTER, from, to, (int64_t)count, type, op, 0 });
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return add(comm, stream, (Call){ SEND, from, NULL, (int64_t)count, type, 0, peer });
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream, (Call){ RECV, NULL, to, (int64_t)count, type, 0, peer });
}
