/* workspace.h -- memory for messages, beside the arena: the runtime allocates it, and `mpc report` prints it.  For what
 * a GPU needs besides, see cuda/sizes.h. */
#ifndef MPC_RUNTIME_WORKSPACE_H
#define MPC_RUNTIME_WORKSPACE_H

#include "slots.h"

/* On a processor a round exchanges so many bytes of each message: what is packed and what has come stay small, however
 * large the tensors are. */
#ifndef RT_ROUND /* tests make rounds of small messages, too */
#define RT_ROUND (4 << 20)
#endif

static inline int64_t rt_slots_bytes(RtType type, RtSlots slots)
{
    return slots.rows * slots.run * rt_type_bytes(type);
}

/* Of the message from this rank to another one. */
static inline int64_t rt_message_bytes(const RtCollective *c)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->npieces; i++)
        bytes += rt_slots_bytes(c->type, rt_sent_slots(c->kind, &c->piece[i]));
    return bytes;
}

/* On a processor: messages that are packed, and those that come.  There is one such workspace for all collectives. */
static inline int64_t rt_exchange_workspace(const RtCollective *c, int64_t ranks)
{
    int64_t bytes = rt_message_bytes(c);
    bytes = bytes < RT_ROUND ? bytes : RT_ROUND;
    if (c->kind == RT_ALL_REDUCE) /* packed, and a piece from each rank, the larger ones rounded up */
        return 2 * bytes + ranks * rt_type_bytes(c->type);
    return ((c->kind == RT_ALL_GATHER ? 1 : ranks) + ranks) * bytes; /* gathered: all get the same */
}

/* Does each rank's part lie in one piece, so that NCCL may take it where it is? */
static inline bool rt_slots_are_plain(RtSlots slots) { return slots.all || (slots.rows == 1 && !slots.zigzag); }

#endif
