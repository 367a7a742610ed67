/* pace.h -- the ranks that the others wait for. */
#ifndef MPC_RUNTIME_PACE_H
#define MPC_RUNTIME_PACE_H

#include "state.h"

/* By rank, of the last step. */
typedef struct {
    int ranks;      /* 0: unknown, as on GPUs, or there is one rank */
    double *waited; /* seconds in which it waited for messages, and before the step for others to end theirs */
    double between; /* seconds, of this rank: until all had ended the last one */
    double *late;   /* seconds that its own work took longer than that of the median rank, which others waited for */
    double *work;   /* seconds of own work, of which this was more */
    double *worked; /* the same, in ... */
    int64_t steps;  /* ... so many steps */
    bool *is_told;
} RtPace;

void rt_pace_open(RtPace *pace, const Rt *rt);
void rt_pace_close(RtPace *pace);

/* What each rank says between two steps: a number, of which the largest is the result, and how long its last step
 * took and waited, in seconds.  All ranks call it. */
double rt_pace_gather(RtPace *pace, Rt *rt, double number, double seconds, double waited);

/* After such a step: each 50 steps names those ranks that have worked 1.2 times as long as the median rank, each rank
 * once.  All ranks call it. */
void rt_pace_count(RtPace *pace, Rt *rt, int64_t step);

#endif
