/* tier.h -- memory beyond the device's: of the host, or files.
 *
 * A value whose type says `on host` or `on disk` is read and written by `move` alone; functions and loops pass it, and
 * slices of it.  In the plan other tiers are behind the arena, with one range of addresses for all: the state of the
 * step, and what programs and the functions they call put there, each in a place of its own (IN_TIER).  A rank's arena
 * may have gaps, see kinds/kinds.h; what is behind it has none.
 *
 *   [0, frame of the step)                    the arena
 *   [far_begin, far_begin + far_bytes)        other tiers; tensors begin at multiples of a page
 */
#ifndef MPC_TIER_H
#define MPC_TIER_H

#include "ir.h"

enum { FAR_ALIGNMENT = 4096 }; /* bytes: what direct transfers of files need */

static inline int64_t far_aligned(int64_t at) { return (at + FAR_ALIGNMENT - 1) / FAR_ALIGNMENT * FAR_ALIGNMENT; }

/* Where other tiers begin behind an arena of so many bytes. */
static inline int64_t far_begin(int64_t arena) { return far_aligned(arena + 1); }

/* Is it a move whose result takes the place of this operand, which it overwrites without reading it? */
static inline bool replaces(const Op *op, const Value *operand)
{
    return info(op)->traits & CARRIES && op->args.count == 2 && arg(op, 1) == operand;
}

/* Bytes of other tiers in a placed program, of all ranks alike; 0: all is on the device. */
int64_t far_bytes(const Module *m);

/* The tier to which the layout offloads; ON_DEVICE: it offloads nothing. */
Tier far_tier(const Module *m);

/* The end of all addresses: of the arena of the largest program or, behind it, of the other tiers. */
int64_t bytes_of_tiers(const Module *m);

/* The move that brings an operand to the device, if the operand has one reader; NULL: none does. */
Op *fetch_of(const Func *f, const Value *operand);

/* The move that is the only reader of a result; NULL: others read it. */
Op *move_away_of(const Func *f, const Value *made);

#endif
