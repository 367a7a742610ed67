/* memory_bound.h -- what the program of one rank has in memory, for least_memory(): bound.c compiles it. */
#ifndef MPC_MEMORY_BOUND_H
#define MPC_MEMORY_BOUND_H

#include "splits.h"

#include "cost/step_cost.h"

enum { POLICIES = RECOMPUTE_AUTO };

void start_memory_bounds(Planner *p);
void note_savings(const Splits *s, Recompute policy, const Op *loop); /* of a micro-batch that runs the loop once */
void note_state(Planner *p, const Splits *s, const Classes *classes, const CostList *items);

#endif
