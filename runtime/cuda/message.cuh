/* message.cuh -- packing and unpacking of messages between ranks.
 *
 * A table gives the positions for each tensor (message.h).  Threads traverse a tensor in its order, so accesses to it
 * are contiguous; accesses to messages are contiguous runs.
 */
#ifndef MPC_CUDA_MESSAGE_CUH
#define MPC_CUDA_MESSAGE_CUH

#include "element.cuh"
#include "message.h"

/* T: the unit of copies.  INDEX: type of byte offsets in the tensor. */
template <typename T, typename INDEX>
RT_INLINE void rt_copy_slots(const RtMessagePart &part, int block, char *tensor, char *messages)
{
    T *const whole = reinterpret_cast<T *>(tensor), *const packed = reinterpret_cast<T *>(messages);
    const INDEX run = (INDEX)(part.run / (int64_t)sizeof(T)), ranks = part.ranks, row_slots = ranks * part.slots;
    const INDEX all = (INDEX)part.rows * row_slots * run;
    for (INDEX item = (INDEX)block * RT_MESSAGE_THREADS + threadIdx.x; item < all;
         item += (INDEX)part.blocks * RT_MESSAGE_THREADS) {
        const INDEX number = item / run, row = number / row_slots, slot = number % row_slots;
        const bool is_second = slot >= ranks;
        const INDEX rank = is_second ? row_slots - 1 - slot : slot;
        const INDEX at = ((rank * (INDEX)part.rows + row) * part.slots + is_second) * run + item % run;
        if (part.is_received)
            whole[item] = packed[at];
        else
            packed[at] = whole[item];
    }
}

template <typename T> RT_INLINE void rt_copy_part(const RtMessagePart &part, int block, char *tensor, char *messages)
{
    if (part.rows * part.run * part.ranks * part.slots <= INT32_MAX)
        rt_copy_slots<T, uint32_t>(part, block, tensor, messages);
    else
        rt_copy_slots<T, uint64_t>(part, block, tensor, messages);
}

/* Counts the progress of a collective, and shows it to the host; `count` NULL: of another launch. */
RT_INLINE void rt_count(unsigned char *count, unsigned char *shown)
{
    if (count && blockIdx.x == 0 && threadIdx.x == 0)
        *(volatile unsigned char *)shown = ++*count;
}

/* The parts of one launch, and the tensor of each. */
RT_INLINE void rt_copy_messages(const RtMessagePart *parts, char *workspace, char *const (&tensors)[RT_MESSAGE_TENSORS])
{
    int number = 0, block = blockIdx.x;
    for (; block >= parts[number].blocks; number++)
        block -= parts[number].blocks;
    const RtMessagePart part = parts[number];
    char *tensor = tensors[0], *const messages = workspace + part.message;
#pragma unroll
    for (int i = 1; i < RT_MESSAGE_TENSORS; i++)
        tensor = number == i ? tensors[i] : tensor;
    const int64_t boundary = (int64_t)tensor | (int64_t)messages | part.run;
    if (boundary % 16 == 0)
        rt_copy_part<RtPack<uint32_t, 4>>(part, block, tensor, messages);
    else if (boundary % 4 == 0)
        rt_copy_part<uint32_t>(part, block, tensor, messages);
    else if (boundary % 2 == 0)
        rt_copy_part<uint16_t>(part, block, tensor, messages);
    else
        rt_copy_part<uint8_t>(part, block, tensor, messages);
}

#endif
