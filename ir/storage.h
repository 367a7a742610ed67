/* storage.h -- the storage of values: what the memory pass plans, and the conventions for readers of its plan.
 *
 * A called function has a frame of its own inside its caller's.  Operands and results come to it as pointers.  Behind
 * the frame of a loop's callee lie, one behind the other,
 *
 *   for each carried value that is not made in place     a second buffer: iterations alternate between the two
 *
 * The last iteration writes where the loop's result lies.  Of what is in flight the loop has no result: the buffer of
 * the operand is the other one.
 */
#ifndef MPC_STORAGE_H
#define MPC_STORAGE_H

#include "ir.h"

bool coincide(const Value *a, const Value *b); /* do both have a place, and is it the same? */

/* Placed: without gaps, as the dims of its type stand; dims of one element may have any stride. */
bool is_row_major(const Module *m, const Value *value);

/* Placed: a view whose padding lies behind the end of what it is a view of.  Whoever reads padding along needs a copy.
 */
bool overhangs(const Module *m, const Value *value);

/* What a view is of, in the end; any other value is its own. */
const Value *shown_by(const Value *value);

/* Does the op read the value's memory as a view of it: other strides, or a part? */
bool reads_view_of(const Op *op, const Value *value);

int64_t aligned_bytes(int64_t bytes); /* rounded up to whole cache lines, as every place in the arena is */

/* Is the i-th value that a loop carries made where it is read? */
bool is_carried_in_place(const Op *loop, const Func *callee, int i);

int64_t iteration_buffers(const Module *m, const Op *loop, const Func *callee); /* bytes behind the callee's frame */

/* Does that iteration, from 0, write the i-th value that is carried, and not made in place, to the buffer behind the
 * callee's frame, or where the loop's result lies? */
bool is_written_behind(const Op *loop, int i, int64_t iteration);

/* Is nothing written over while somebody still reads it, in any program of the module, as the memory pass has placed
 * it?  True before that pass.  Every place must be within reach of its op: verify_module comes first. */
bool verify_memory(Module *m);

#endif
