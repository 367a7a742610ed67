/* nccl.h -- NCCL for nccl.c, which queues collectives, and watch.c, which watches them. */
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
    int64_t calls, joined; /* on its stream; for the first `joined` of them the compute stream has waited */
} RtNcclChannel;

typedef struct RtNcclEntry RtNcclEntry; /* nccl.c */

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

/* "rank 3 (tp 1): NCCL cannot WHAT: ..."; owned by the caller.  The channel may be NULL. */
char *rt_nccl_error(const Rt *rt, const RtNcclChannel *channel, const char *what, ncclResult_t status);

/* --- watch.c ---------------------------------------------------------------------------------- */

void rt_gpu_watch_open(Rt *rt);  /* before there are communicators: an error aborts those that there are */
void rt_gpu_watch_start(Rt *rt); /* when there are all */
void rt_gpu_watch_close(Rt *rt); /* before they are destroyed */

/* How often collective `id` has begun, or is done. */
RtGpuCount rt_gpu_count(const Rt *rt, int id, bool is_done);

/* Queues a kernel that counts. */
void rt_gpu_note(Rt *rt, RtGpuCount count, cudaStream_t stream);

#endif
