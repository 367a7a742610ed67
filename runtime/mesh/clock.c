/* clock.c -- the differences between the clocks of ranks, from messages: none arrives before it was sent.
 *
 * In a round each rank reads its clock, sends, receives from all, and reads again.  With d the seconds that rank r's
 * clock is ahead of rank 0's, r cannot leave before 0 has entered, nor 0 before r has entered:
 *
 *   entered(0) + d <= left(r),   entered(r) <= left(0) + d
 *
 * Each round bounds d from both sides, and the fastest messages bound it best.  Ranks of one machine share a clock: 0
 * is always within the bounds, and is then taken. */
#include "comm.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 32 };

typedef struct {
    double entered, left_before; /* this round; the one before */
} Reading;

double rt_clock_ahead(Rt *rt)
{
    double least = -INFINITY, most = INFINITY, left = 0, entered_before = 0;
    Reading *all = rt_allocate(rt->ranks, sizeof *all);
    for (int round = 0; round <= ROUNDS; round++) {
        const Reading own = { .entered = rt_seconds(), .left_before = left };
        rt_comm_gather(rt, &own, sizeof own, (char *)all);
        left = rt_seconds();
        most = fmin(most, left - all[0].entered);
        if (round > 0)
            least = fmax(least, entered_before - all[0].left_before);
        entered_before = own.entered;
    }
    free(all);
    return least <= 0 && most >= 0 ? 0 : (least + most) / 2;
}
