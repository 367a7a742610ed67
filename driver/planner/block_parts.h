/* block_parts.h -- shared by the files that read the parts of a micro-batch from the items of a program: see block.h.
 */
#ifndef MPC_BLOCK_PARTS_H
#define MPC_BLOCK_PARTS_H

#include "sized.h"

typedef struct {
    const Planner *p;
    const Sized *s;
    const Sizing *sizing;
    const RepeatLoads *weights;
    Block *block;
} Parts;

double seconds_of(const Parts *parts, const CostItem *from, int count);
double seconds_of_copy(const Parts *parts, const CostItem *item); /* as the later ones of a loop take */

void read_actions(const Parts *parts); /* stage_parts.c: of a program in actions */

#endif
