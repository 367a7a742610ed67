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

/* A tensor's rows that are at least so large are collectives of their own, in one group of NCCL: packing them would
 * cost more than the calls. */
#define RT_ROW_BYTES (1 << 20)

/* Is a row of slots gathered or scattered by itself, from where it lies? */
static inline bool rt_goes_by_rows(RtCollectiveKind kind, RtType type, RtSlots slots, int64_t ranks)
{
    return (kind == RT_ALL_GATHER || kind == RT_REDUCE_SCATTER) && !slots.all && !slots.zigzag && slots.rows > 1 &&
           ranks * slots.run * rt_type_bytes(type) >= RT_ROW_BYTES;
}

/* Is each rank's part packed into, or out of, a message? */
static inline bool rt_is_packed(RtCollectiveKind kind, RtType type, RtSlots slots, int64_t ranks)
{
    return !rt_slots_are_plain(slots) && !rt_goes_by_rows(kind, type, slots, ranks);
}

/* Packed messages: to all ranks of the group, and from all.  There is one workspace for each group. */
static inline int64_t rt_nccl_workspace(const RtCollective *c, int64_t ranks)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->npieces; i++) {
        RtSlots sent = rt_sent_slots(c->kind, &c->piece[i]), received = rt_received_slots(c->kind, &c->piece[i]);
        bytes +=
            rt_is_packed(c->kind, c->type, sent, ranks) ? rt_gpu_aligned(ranks * rt_slots_bytes(c->type, sent)) : 0;
        bytes += rt_is_packed(c->kind, c->type, received, ranks)
                     ? rt_gpu_aligned(ranks * rt_slots_bytes(c->type, received))
                     : 0;
    }
    return bytes;
}

/* The number of packed parts. */
static inline int rt_packed_parts(const RtCollective *c, int64_t ranks)
{
    int count = 0;
    for (int i = 0; i < c->npieces; i++)
        count += rt_is_packed(c->kind, c->type, rt_sent_slots(c->kind, &c->piece[i]), ranks) +
                 rt_is_packed(c->kind, c->type, rt_received_slots(c->kind, &c->piece[i]), ranks);
    return count;
}

/* The progress of each collective; then the tables of message parts. */
static inline int64_t rt_gpu_tables_bytes(int collectives, int parts)
{
    return rt_gpu_aligned(collectives * (int64_t)sizeof(RtGpuProgress)) +
           rt_gpu_aligned(parts * (int64_t)sizeof(RtMessagePart));
}

#endif
