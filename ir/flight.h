/* flight.h -- collectives that have been started, and who waits for them.
 *
 *   %2 = all_reduce %1 {axis=tp, started=true} : f32[i:4] in_flight
 *   ...
 *   %7 = wait %2 : f32[i:4]
 *
 * What is in flight is waited for once: by a `wait` of the same function, or by the callee of a loop that carries it.
 * Each iteration then waits for what came to it and starts what the next one waits for:
 *
 *   func @layer(%x: f32[e:4], %w.whole: f32[e:4] in_flight, %w.next: f32[e:4/dp]) {
 *     %w = wait %w.whole : f32[e:4]
 *     %3 = all_gather %w.next {dim=e, axis=dp, started=true} : f32[e:4] in_flight
 *     %y = mul %x, %w : f32[e:4]
 *     return %y, %3
 *   }
 *   %y, %4 = loop %x, %first, %ws {dims=[n:3], callee=layer, carried=2, prefetch=1} : f32[e:4], f32[e:4] in_flight
 *
 * The last iteration starts nothing, and nobody may read %4.
 */
#ifndef MPC_FLIGHT_H
#define MPC_FLIGHT_H

#include "ir.h"

/* Are these two, of which one stands right behind the other, or only others of their bucket between them, sent as one
 * message?  So are collectives of one {bucket} that differ in nothing but their tensors: kind, axes, dtype, and whether
 * they sum.  The overlap pass starts and waits for them together, the runtime has one RtCollective for them, and a
 * report counts them once. */
bool is_one_message(const Op *a, const Op *b);

/* Does the loop hand its i-th operand on a slice early? */
bool is_prefetched(const Op *loop, int i);

/* The collective whose result, in flight, f waits for.  Of a parameter: the one that f starts in its place, for the
 * next iteration; NULL: f starts none. */
const Op *flight_start(const Func *f, const Value *value);

/* The result of f in which it hands on what this collective has started, or -1. */
int handed_on(const Func *f, const Op *start);

/* The collective of a loop's callee that goes on where this one, of f, which the loop carries, begins: both are one
 * message to the runtime.  Else the op itself. */
const Op *continued_by(const Module *m, const Op *start);

/* The loop whose iterations f is, if nothing else calls it; NULL: it is none. */
Op *only_loop(const Module *m, const Func *f, Func **caller);

/* Is all that is in flight waited for once, and are messages started and waited for whole? */
bool verify_flights(Module *m, const Func *f);

#endif
