/* slots.h -- the parts of a tensor that are sent to and received from each of the n ranks of a group, on either device.
 *
 * A message to one rank is, for each tensor, either all of it or one slot of every row: rows of n slots, slot q being
 * rank q's.  In zig-zag a row has 2n slots, of which q and 2n-1-q are rank q's.
 *
 *   all_gather       sends all          receives into slots
 *   reduce_scatter   sends slots        receives all, n times, and sums
 *   all_to_all       sends slots        receives into slots
 *   all_reduce       sends all          receives all, n times, and adds up
 *   send             sends all          receives all
 *   rotate           sends all          receives all, each of one rank
 */
#ifndef MPC_RUNTIME_SLOTS_H
#define MPC_RUNTIME_SLOTS_H

#include "../rt.h"

static inline int64_t rt_type_bytes(RtType type)
{
    return type == RT_BOOL ? 1 : type == RT_BF16 || type == RT_F16 ? 2 : 4;
}

/* What of a tensor belongs to one rank of a group. */
typedef struct {
    bool all;
    int64_t rows, run; /* all: rows * run elements; else a slot has `run` elements */
    bool zigzag;
} RtSlots;

static inline RtSlots rt_sent_slots(RtCollectiveKind kind, const RtPiece *p)
{
    switch (kind) {
    case RT_ALL_REDUCE:
    case RT_ALL_GATHER:
    case RT_SEND:
    case RT_ROTATE:
        return (RtSlots){ .all = true, .rows = p->outer, .run = p->block };
    case RT_REDUCE_SCATTER:
        return (RtSlots){ .rows = p->outer, .run = p->block, .zigzag = p->zigzag };
    case RT_ALL_TO_ALL:
        break;
    }
    int64_t rows = p->gathers_first ? p->outer * p->block * p->middle : p->outer;
    int64_t run = p->gathers_first ? p->cut * p->inner : p->cut * p->middle * p->block * p->inner;
    return (RtSlots){ .rows = rows, .run = run, .zigzag = p->zigzag_cut };
}

static inline RtSlots rt_received_slots(RtCollectiveKind kind, const RtPiece *p)
{
    switch (kind) {
    case RT_ALL_REDUCE:
    case RT_REDUCE_SCATTER:
    case RT_SEND:
    case RT_ROTATE:
        return (RtSlots){ .all = true, .rows = p->outer, .run = p->block };
    case RT_ALL_GATHER:
        return (RtSlots){ .rows = p->outer, .run = p->block, .zigzag = p->zigzag };
    case RT_ALL_TO_ALL:
        break;
    }
    int64_t rows = p->gathers_first ? p->outer : p->outer * p->cut * p->middle;
    int64_t run = p->gathers_first ? p->block * p->middle * p->cut * p->inner : p->block * p->inner;
    return (RtSlots){ .rows = rows, .run = run, .zigzag = p->zigzag };
}

#endif
