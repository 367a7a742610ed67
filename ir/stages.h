/* stages.h -- how the copies of repeats are dealt to the stages of a pipeline. */
#ifndef MPC_STAGES_H
#define MPC_STAGES_H

#include "ir.h"

/* copies[repeat] is the number of copies of consecutive repeats, stage[s] the number that a stage takes of all repeats
 * together.  part[repeat][s] becomes the copies of that repeat on the stage; -1: the repeat does not reach it.  A
 * repeat begins on the stage where the one before ends, with 0 copies there if that stage is full. */
void cut_repeats(const int64_t *copies, int repeats, const int64_t *stage, int64_t part[][MAX_SET_RANKS]);

#endif
