/* sizes.h -- memory on the GPU besides the arena: the runtime allocates it, and mpc reports it. */
#ifndef MPC_CUDA_SIZES_H
#define MPC_CUDA_SIZES_H

#include "../mesh/workspace.h"
#include "message.h"

enum {
    RT_GPU_PRODUCT_BYTES = 32 << 20, /* cuBLASLt's workspace */
    RT_GPU_ALIGNMENT = 256           /* of each part of the memory, like cudaMalloc */
};

static inline int64_t rt_gpu_aligned(int64_t bytes)
{
    return (bytes + RT_GPU_ALIGNMENT - 1) / RT_GPU_ALIGNMENT * RT_GPU_ALIGNMENT;
}

/* Packed messages: to all ranks of the group, and from all.  There is one workspace for each group. */
static inline int64_t rt_nccl_workspace(const RtCollective *c, int64_t ranks)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->npieces; i++) {
        RtSlots sent = rt_sent_slots(c->kind, &c->piece[i]), received = rt_received_slots(c->kind, &c->piece[i]);
        bytes += rt_slots_are_plain(sent) ? 0 : rt_gpu_aligned(ranks * rt_slots_bytes(c->type, sent));
        bytes += rt_slots_are_plain(received) ? 0 : rt_gpu_aligned(ranks * rt_slots_bytes(c->type, received));
    }
    return bytes;
}

/* The number of packed parts. */
static inline int rt_packed_parts(const RtCollective *c)
{
    int count = 0;
    for (int i = 0; i < c->npieces; i++)
        count += !rt_slots_are_plain(rt_sent_slots(c->kind, &c->piece[i])) +
                 !rt_slots_are_plain(rt_received_slots(c->kind, &c->piece[i]));
    return count;
}

/* The progress of each collective; then the tables of message parts. */
static inline int64_t rt_gpu_tables_bytes(int collectives, int parts)
{
    return rt_gpu_aligned(collectives * (int64_t)sizeof(RtGpuProgress)) +
           rt_gpu_aligned(parts * (int64_t)sizeof(RtMessagePart));
}

#endif
