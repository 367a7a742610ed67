/* repeat_loads.h -- what the copies of repeats compute that ranks of an axis share. */
#ifndef MPC_REPEAT_LOADS_H
#define MPC_REPEAT_LOADS_H

#include "ir.h"

/* FLOPs of a micro-batch. */
typedef struct {
    int repeats;                    /* 0: the axis splits no copies */
    Name dim[MAX_REPEATS];          /* that counts the copies of each; of its first chunk, if it is cut in chunks */
    int64_t copies[MAX_REPEATS];    /* along that dim */
    double copy[MAX_REPEATS];       /* of one copy of each */
    double beside[MAX_REPEATS + 1]; /* before the first repeat, and after each */
} RepeatLoads;

static inline int64_t all_copies(const RepeatLoads *loads) /* all */
{
    int64_t copies = 0;
    for (int i = 0; i < loads->repeats; i++)
        copies += loads->copies[i];
    return copies;
}

RepeatLoads weigh_repeats(Module *m, int axis); /* of a program that is not laid out yet */

int64_t copies_in(const Module *m, const ShardRule *rule); /* that it splits; 0: it is about something else */

/* The next rule of copies over the axis, from this one on: of a repeat, or of a chunk of it; NULL: there is none. */
ShardRule *next_chunk(const Module *m, ShardRule *rule, int axis);

#endif
