/* share_copies.h -- cuts the copies of several repeats in consecutive ranges, one for each stage. */
#ifndef MPC_SHARE_COPIES_H
#define MPC_SHARE_COPIES_H

#include "arena.h"

#include <stdint.h>

/* stage[0 .. stages - 1]: how many copies each has, at least one, so that the largest sum of their FLOPs is as small as
 * possible.  `flops`: of each of the `count` copies, with what is computed beside it; count >= stages. */
void share_copies(Arena *arena, const double *flops, int64_t count, int stages, int64_t *stage);

#endif
