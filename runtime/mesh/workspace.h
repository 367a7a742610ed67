/* workspace.h -- memory for messages, besides the arena: the runtime allocates it, and `mpc report` prints it.  For
 * further memory on a GPU, see cuda/sizes.h. */
#ifndef MPC_RUNTIME_WORKSPACE_H
#define MPC_RUNTIME_WORKSPACE_H

#include "slots.h"

/* On a processor, the bytes of each message exchanged in one round: bounds the workspace, independent of the size of
 * tensors. */
#ifndef RT_ROUND /* tests set a smaller value */
#define RT_ROUND (4 << 20)
#endif

/* Of a message with gaps: bytes that are sent, or left out, together. */
#ifndef RT_UNIT /* tests set a smaller value */
#define RT_UNIT 256
#endif

static inline int64_t rt_gaps_map_bytes(int64_t bytes) { return (bytes + 8 * RT_UNIT - 1) / (8 * RT_UNIT); }

static inline int64_t rt_slots_bytes(RtType type, RtSlots slots)
{
    return slots.rows * slots.run * rt_type_bytes(type);
}

/* Bytes of the message from this rank to another one. */
static inline int64_t rt_message_bytes(const RtCollective *c)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->npieces; i++)
        bytes += rt_slots_bytes(c->type, rt_sent_slots(c->kind, &c->piece[i]));
    return bytes;
}

/* On a processor: packed and received messages.  All collectives share one workspace. */
static inline int64_t rt_exchange_workspace(const RtCollective *c, int64_t ranks)
{
    int64_t bytes = rt_message_bytes(c);
    bytes = bytes < RT_ROUND ? bytes : RT_ROUND;
    if (c->kind == RT_SEND || c->kind == RT_ROTATE)
        return 0;
    if (c->kind == RT_ALL_REDUCE) /* packed, and a piece from each rank, rounded up */
        return 2 * bytes + ranks * rt_type_bytes(c->type);
    const bool gathers = c->kind == RT_ALL_GATHER; /* all ranks get the same message */
    const int64_t beside = c->gaps ? 2 * ranks * rt_gaps_map_bytes(bytes) + (gathers ? bytes : 0) : 0;
    return ((gathers ? 1 : ranks) + ranks) * bytes + beside;
}

/* Is each rank's part contiguous, so that NCCL can use it in place?  A stage without copies has no rows. */
static inline bool rt_slots_are_plain(RtSlots slots)
{
    return slots.all || slots.rows == 0 || (slots.rows == 1 && !slots.zigzag);
}

#endif
