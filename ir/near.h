/* near.h -- "did you mean": the existing name nearest to an unknown one, in a file or on the command line. */
#ifndef MPC_NEAR_H
#define MPC_NEAR_H

#include "arena.h"

/* Begin with {name}, offer() each existing name, then read `best`, which is NULL if none is near. */
typedef struct {
    const char *name, *best;
    int distance;
} NearMiss;
void offer(NearMiss *near, const char *name);
const char *did_you_mean(Arena *arena, const NearMiss *near); /* a help text, or NULL */
const char *name_meant(Arena *arena, const char *help);       /* the name in such a text; NULL: it is another one */

#endif
