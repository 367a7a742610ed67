/* nccl.h -- NCCL: nccl_open.c forms communicators, nccl_memory.c registers the arena with them, nccl.c queues
 * collectives on them, watch.c watches them. */
#ifndef MPC_CUDA_NCCL_H
#define MPC_CUDA_NCCL_H

#include "gpu.h"

#include <nccl.h>

#define RT_NCCL_FUNCTIONS(F)                                                                                           \
    F(ncclGetVersion)                                                                                                  \
    F(ncclGetUniqueId)                                                                                                 \
    F(ncclCommInitRankConfig)                                                                                          \
    F(ncclCommGetAsyncError)                                                                                           \
    F(ncclCommFinalize)                                                                                                \
    F(ncclCommDestroy)                                                                                                 \
    F(ncclCommAbort)                                                                                                   \
    F(ncclGroupStart)                                                                                                  \
    F(ncclGroupEnd)                                                                                                    \
    F(ncclAllReduce)                                                                                                   \
    F(ncclAllGather)                                                                                                   \
    F(ncclReduceScatter)                                                                                               \
    F(ncclSend)                                                                                                        \
    F(ncclRecv)                                                                                                        \
    F(ncclGetErrorString)                                                                                              \
    F(ncclGetLastError)

#define RT_POINTER(function) __typeof__(&function) function;
#define RT_FUNCTION_NAME(function) #function,

/* A communicator, and the stream of its collectives. */
typedef struct {
    const RtGroup *group;
    int lane; /* of messages between two ranks: see lane_of; -1: of collectives */
    ncclComm_t comm;
    cudaStream_t stream;
    char *workspace;
    cudaEvent_t end;
    int64_t taken;         /* bytes of the GPU that NCCL has taken for it */
    int64_t calls, joined; /* on its stream; for the first `joined` of them the compute stream has waited */
} RtNcclChannel;

/* The end of a message between two ranks. */
typedef struct {
    cudaEvent_t end;
    bool is_awaited; /* or there was none in its place yet */
} RtNcclMessage;

/* A collective. */
typedef struct {
    RtNcclChannel *channel; /* NULL: others run it; of messages between two ranks, that of the first lane */
    cudaEvent_t begun, done;
    RtNcclMessage *message; /* message number n at n % room, until it has been waited for */
    int room;
    int64_t started;
    int64_t call;       /* the number of its last one on its channel, from 1 on */
    int64_t sent_bytes; /* by one call, to other ranks */
} RtNcclEntry;

struct RtGpuCollectives {
    union {
        struct {
            RT_NCCL_FUNCTIONS(RT_POINTER)
        };
        void *at[16];
    };
    int nchannels;
    RtNcclChannel *channel;
    RtNcclEntry *entry;
    struct RtGpuWatch *watch; /* watch.c */
};

/* --- nccl_open.c ------------------------------------------------------------------------------ */

/* "rank 3 (tp 1): NCCL cannot WHAT: ..."; owned by the caller.  The channel may be NULL. */
char *rt_nccl_error(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status);

/* Communicators are nonblocking: waits until the operation is complete; ends the trainer if it fails or times out. */
void rt_nccl_await(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status);
_Noreturn void rt_nccl_refuse(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status);

/* Calls of a group are only collected: a non-blocking communicator may say of one that it is in progress. */
static inline bool rt_nccl_is_taken(ncclResult_t status) { return status == ncclSuccess || status == ncclInProgress; }

/* The channel of messages from one member of the group to another. */
RtNcclChannel *rt_nccl_lane(const Rt *rt, const RtGroup *group, int from, int to);

/* --- nccl_memory.c ---------------------------------------------------------------------------- */

/* The arena, when communicators are formed; NULL: there is no memory for it. */
void *rt_nccl_memory_open(Rt *rt, int64_t bytes);
void rt_nccl_memory_release(Rt *rt); /* before communicators are closed */
void rt_nccl_memory_close(Rt *rt);   /* frees the arena */

/* --- watch.c ---------------------------------------------------------------------------------- */

void rt_gpu_watch_open(Rt *rt);  /* before there are communicators: an error aborts those that there are */
void rt_gpu_watch_start(Rt *rt); /* when there are all */
void rt_gpu_watch_close(Rt *rt); /* before they are destroyed */

/* How often collective `id` has begun, or is done. */
RtGpuCount rt_gpu_count(const Rt *rt, int id, bool is_done);

/* Queues a kernel that counts. */
void rt_gpu_note(Rt *rt, RtGpuCount count, cudaStream_t stream);

#endif
