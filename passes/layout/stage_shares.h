/* stage_shares.h -- the number of copies of repeats that each stage of a pipeline runs, balanced by work. */
#ifndef MPC_STAGE_SHARES_H
#define MPC_STAGE_SHARES_H

#include "repeat_loads.h"

/* stage[0 .. stages - 1]: how many copies each has, at least one, so that the largest sum of their FLOPs is as small as
 * possible.  `flops`: of each of the `count` copies, with what is computed beside it; count >= stages. */
void share_copies(Arena *arena, const double *flops, int64_t count, int stages, int64_t *stage);

/* Of several repeats, as one sequence of copies. */
void share_repeats(Arena *arena, const RepeatLoads *loads, int stages, int64_t *stage);

/* The copies of one repeat in chunks.  Each chunk passes all ranks. */
typedef struct {
    const RepeatLoads *loads;   /* what is before the copies is on the first stage, what is after them on the last */
    int ranks, count;           /* of chunks */
    bool reversed[MAX_CHUNKS];  /* the chunk passes the last rank first */
    int64_t copies[MAX_CHUNKS]; /* at least one for each rank */
} ChunkLoads;

/* part[chunk][rank]: the copies; first those of each rank in all chunks are shared out, then, from the last chunk to
 * the first, those of each stage. */
void share_chunks(const ChunkLoads *chunks, int64_t part[][MAX_SET_RANKS]);

#endif
