/* stage_balance.h -- the number of copies of a repeat that each stage of a pipeline runs. */
#ifndef MPC_STAGE_BALANCE_H
#define MPC_STAGE_BALANCE_H

#include "ir.h"

/* Sets the parts of the rules that split copies of a repeat and do not say them, so that stages do equally much; not of
 * a program that is laid out already. */
void balance_stages(Module *m);

#endif
