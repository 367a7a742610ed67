/* stage_balance.h -- the number of copies of a repeat that each stage of a pipeline runs. */
#ifndef MPC_STAGE_BALANCE_H
#define MPC_STAGE_BALANCE_H

#include "ir.h"

/* Sets the parts of the rules that split copies of a repeat and do not say them, so that stages do equally much; not of
 * a program that is laid out already. */
void balance_stages(Module *m);

/* What the stages share, in FLOPs of a micro-batch. */
typedef struct {
    int repeats;           /* 0: there are no stages */
    Name dim[MAX_REPEATS]; /* that counts the copies of each */
    int64_t copies[MAX_REPEATS];
    double copy[MAX_REPEATS];       /* of one copy of each */
    double beside[MAX_REPEATS + 1]; /* before the first repeat, and after each */
} StageWeights;

/* Of a program that balance_stages() would take, with one chunk. */
StageWeights weigh_stages(Module *m);

#endif
