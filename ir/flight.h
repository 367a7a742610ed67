/* flight.h -- asynchronous collectives and their waits.
 *
 *   %2 = all_reduce %1 {axis=tp, started=true} : f32[i:4] in_flight
 *   ...
 *   %7 = wait %2 : f32[i:4]
 *
 * A value in flight is waited for once: by a `wait` of the same function, or by the callee of a loop that carries it.
 * Each iteration then waits for the collective that the previous one started, and starts one for the next:
 *
 *   func @layer(%x: f32[e:4], %w.whole: f32[e:4] in_flight, %w.next: f32[e:4/dp]) {
 *     %w = wait %w.whole : f32[e:4]
 *     %3 = all_gather %w.next {dim=e, axis=dp, started=true} : f32[e:4] in_flight
 *     %y = mul %x, %w : f32[e:4]
 *     return %y, %3
 *   }
 *   %y, %4 = loop %x, %first, %ws {dims=[n:3], callee=layer, carried=2, prefetch=1} : f32[e:4], f32[e:4] in_flight
 *
 * What the message reads is such a slice, or another result that the loop carries, and stays until the wait.  The last
 * iteration starts nothing, and %4 may not be read.
 */
#ifndef MPC_FLIGHT_H
#define MPC_FLIGHT_H

#include "ir.h"

/* Are two collectives, with at most others of their bucket between them, sent as one message?  They are if they have
 * the same {bucket} and differ only in their tensors: kind, axes, dtype and summation are equal.  The overlap pass
 * starts and waits for them together, the runtime has one RtCollective for them, and a report counts them once. */
bool is_one_message(const Op *a, const Op *b);

/* Does the loop pass its i-th operand one slice ahead? */
bool is_prefetched(const Op *loop, int i);

/* The collective that started a value in flight for which f waits.  If the value is a parameter of a loop's function:
 * the collective that f itself starts for the next iteration.  NULL: none. */
const Op *flight_start(const Func *f, const Value *value);

/* The only reader of what the op starts, behind it; NULL: the function returns it. */
Op *flight_end(const Op *start);

/* If f receives the value in flight, what the message reads: the parameter that f has it in, as the iteration before
 * returned it; NULL: no parameter of f, but a slice of an operand of the loop. */
const Value *sent_before(const Func *f, const Value *in_flight);

/* The index of the result of f that is this started collective, or -1. */
int handed_on(const Func *f, const Op *start);

/* If a loop carries the value that `start` puts in flight: the collective in the loop's function that starts the
 * message of the next iteration; the runtime has one RtCollective for both.  Otherwise `start`. */
const Op *continued_by(const Module *m, const Op *start);

/* Is each value in flight waited for once, and is each message started and waited for as a whole? */
bool verify_flights(Module *m, const Func *f);

#endif
