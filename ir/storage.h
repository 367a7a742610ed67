/* storage.h -- the storage of values: what the memory pass plans, and the conventions for readers of its plan.
 *
 * A called function has its own frame inside its caller's.  Operands and results are passed as pointers.  After the
 * frame of a loop's callee follow
 *
 *   for each carried value that is not made in place     a second buffer: iterations alternate between two buffers
 *   for what the micro-batches of a pipeline keep        slots, see schedule/slots.h
 *
 * The last iteration writes to the storage of the loop's result.  A value in flight has no loop result: its other
 * buffer is the storage of the operand.
 */
#ifndef MPC_STORAGE_H
#define MPC_STORAGE_H

#include "ir.h"
#include "map.h"

/* The address of the base, in a function whose frame and pointer arguments are at these addresses. */
static inline int64_t base_address(const Storage *s, int64_t frame, const int64_t *pointer)
{
    return s->base == BY_POINTER ? pointer[s->pointer] : s->base == IN_TIER ? 0 : frame;
}

bool have_same_address(const Value *a, const Value *b); /* are both placed, at the same address? */

/* Of placed values with the same dims. */
bool have_same_strides(const Module *m, const Value *a, const Value *b);

/* Of a placed op that FOLDS several dims into one: is the memory order of the several that of the one?  A step along
 * the innermost of them must be a step along the one, and a step along the next must pass all of the innermost. */
bool has_strides_of_fold(const Module *m, const Op *op);

/* Is a placed value without gaps, in the order of its type's dims?  Dims of one element may have any stride. */
bool is_row_major(const Module *m, const Value *value);
bool lies_in_order(const Module *m, const Value *value, const Names *order); /* ... in this one */

/* Does each iteration of a loop have its slice of it?  No: the same, or it is carried, or op is none. */
bool is_passed_in_slices(const Op *op, const Value *value);

/* Is a placed value a view whose padding extends beyond the end of the viewed value?  Readers of padding need a copy.
 */
bool padding_overhangs(const Module *m, const Value *value);

/* The value whose memory a view shows, through views of views; any other value itself. */
const Value *shown_by(const Value *value);

/* The strides of a view of a placed value; false if it cannot be one: dims that become one are not nested there. */
bool strides_of_view(const Module *m, const Op *view, int64_t stride[]);

int64_t aligned_bytes(int64_t bytes); /* rounded up to whole cache lines, the alignment of the arena */

/* Is the i-th carried value of a loop updated in place? */
bool is_carried_in_place(const Op *loop, const Func *callee, int i);

/* Bytes that the target's kernel for an op uses beside its results, remembered in `known`. */
int64_t scratch_bytes(Module *m, Map *known, const Op *op);
void forget_scratch(Map *known, const Op *op); /* its types have changed */

int64_t iteration_buffers(const Module *m, const Op *loop, const Func *callee); /* bytes after the callee's frame */

/* Of the i-th carried value, not updated in place: does that iteration, from 0, write to the buffer after the callee's
 * frame (true) or to the storage of the loop's result? */
bool is_written_behind(const Op *loop, int i, int64_t iteration, int64_t iterations);

/* Does no program of the module, as placed by the memory pass, overwrite a live value?  True before that pass.  The
 * module must have passed verify_module. */
bool verify_memory(Module *m);

/* Does each kind of rank, of whose frames gaps are left out (kinds/kinds.h), have memory for all that it reads and
 * writes?  Like verify_memory(). */
bool verify_kinds(Module *m);

/* Are the operands of an op that joins them (JOINS) where its result has them?  Then it copies nothing. */
bool lies_in_place(const Module *m, const Op *op);

/* Of such an op: would its operands, each by itself and dense, make up its dense result, one behind the other? */
bool joins_in_order(const Module *m, const Op *op);

#endif
