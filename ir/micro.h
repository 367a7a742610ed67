/* micro.h -- the loop of a step over micro-batches.
 *
 * Where split loops are in its body, a schedule can interleave its iterations: then the loop has the attribute
 * `stages`, and so have the calls in its body, one for each action of the schedule.
 */
#ifndef MPC_MICRO_H
#define MPC_MICRO_H

#include "ir.h"

Op *micro_loop(const Module *m);     /* around split loops; NULL: there is none */
Op *scheduled_loop(const Module *m); /* the same, if a schedule interleaves its iterations */

static inline bool is_in_schedule(const Op *op) { return op && op->attrs.stages; } /* that loop, or a call in it */
static inline bool is_scheduled(const Op *op) { return is_in_schedule(op) && op->attrs.dims.count; }
static inline bool is_action_call(const Op *op) { return is_in_schedule(op) && !op->attrs.dims.count; }

/* Does such a call call f?  The schedule sends its messages. */
bool is_part_of_micro(const Module *m, const Func *f);

#endif
