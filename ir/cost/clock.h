/* clock.h -- a rank while it runs the items of a step on a machine: what it computes when, and its messages.
 *
 * All times come from here: the sums of step_time.h, and the bars of bars.h, which are recorded where a sum grows. */
#ifndef MPC_CLOCK_H
#define MPC_CLOCK_H

#include "bars.h"
#include "step_time.h"

enum { WITHIN, BETWEEN, TO_TIERS, N_LINKS }; /* within and between machines, and to other tiers of memory */

/* Its compute stream, and the messages of each class of links. */
typedef struct {
    const StepCost *cost;
    const Machine *machine;
    double now, link[N_LINKS];
    double waited;           /* of `now`, for messages */
    double *done;            /* by number of message: when it has arrived */
    const CostItem **sent;   /* likewise */
    const double *chunk_end; /* when the rank ends each chunk; NULL: there are none */
    double scale;            /* how often what runs now runs in the step */
    StepTime *time;          /* what the rank's time goes to; NULL: not wanted */
    Bars *bars;              /* what it does when; NULL: not wanted */
    Map lines;               /* Op -> the index of its line + 1 */
    Arena *arena;
} Clock;

Clock new_clock(const StepCost *cost, const Machine *machine, Arena *arena);

/* Runs a list from that time on, with all links free; it ends at c->now. */
void run_from(Clock *c, double now, const CostList *list, double times);

AxesTime *axes_time(StepTime *t, Axes axes); /* of these axes, a new one if there is none */

/* The ranks of a message over some axes. */
Group message_group(const Clock *c, Axes axes, int64_t ranks);

#endif
