/* schedule.h -- the learning rate as a function of the step. */
#ifndef MPC_RUNTIME_SCHEDULE_H
#define MPC_RUNTIME_SCHEDULE_H

#include "rt.h"

double rt_schedule_lr(const RtSchedule *schedule, int64_t step); /* step = 0, 1, ... */

#endif
