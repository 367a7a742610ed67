/* ways.h -- ways to offload: which tensors leave the device and when their updates run, as values of --offload. */
#ifndef MPC_WAYS_H
#define MPC_WAYS_H

#include "ir.h"

enum { AWAY_STATE = 1, AWAY_PARAMS = 2, AWAY_ACTIVATIONS = 4 }; /* what moves away, as bits */
enum { N_AWAY = 5, MOST_WAITS = 9 };

/* Sets of them, each with no less away than those before it that it contains. */
extern const int away_sets[N_AWAY];

typedef struct {
    int away;
    int64_t forwards; /* of just_in_time; 1: it alone, 0: updates at once */
    int64_t keep;     /* bytes */
} Way;

Way way_of(const Train *train); /* the program's own; 0: nothing is offloaded */

/* "optimizer to host just_in_time 2", to the tier and the folder of the program; "none". */
const char *way_text(Arena *arena, const Module *m, const Way *way);

/* Fewer and fewer forward passes that run with the updates of what is away, from those of all micro-batches on; gives
 * how many numbers there are.  Not all can be compiled: pipelines have none but 1. */
int list_waits(const Module *m, int away, int64_t forwards[MOST_WAITS]);

#endif
