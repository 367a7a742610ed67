/* storage.h -- where values lie: what the memory pass plans, and what all who read its plan have to know of it.
 *
 * A called function has a frame of its own inside its caller's.  Operands and results come to it as pointers.  Behind
 * the frame of a loop's callee lie, one behind the other,
 *
 *   for each carried value that is not made in place     a second buffer: turns write to and fro
 *   for each collective that runs ahead                  two buffers, for every other turn
 *
 * A collective that runs `ahead` is started one turn early, or before the loop: while a turn works with what has come
 * into one buffer, what the next turn needs is on its way into the other.  It has three pointers, behind those of
 * parameters and results: to its own buffer, to the next turn's, and to the next turn's operand (NULL in the last
 * turn).
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

int64_t turn_buffers(const Module *m, const Op *loop, const Func *callee); /* bytes behind the callee's frame */

enum { AHEAD_POINTERS = 3 };
const Op *first_ahead(const Func *f); /* NULL: none */
const Op *next_ahead(const Op *op);
int count_ahead(const Func *f);

/* The loop whose turns f is, if nothing else calls it. */
const Op *only_loop(const Module *m, const Func *f);

/* Is the operand of this collective of f a slice that a loop hands to each of its turns?  Then it can run ahead. */
bool can_run_ahead(const Module *m, const Func *f, const Op *op);

/* Are these two, of which one stands right behind the other, or only others of their bucket between them, sent as one
 * message?  So are collectives of one {bucket} that differ in nothing but their tensors: kind, axes, dtype, and whether
 * they sum.  The overlap pass starts and waits for them together, the runtime has one RtCollective for them, and a
 * report counts them once. */
bool is_one_message(const Op *a, const Op *b);

/* Is nothing written over while somebody still reads it, in any program of the module, as the memory pass has placed
 * it?  True before that pass.  Every place must be within reach of its op: verify_module comes first. */
bool verify_memory(Module *m);

#endif
