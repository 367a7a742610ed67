/* overlap.h -- shared by the files of the overlap pass. */
#ifndef MPC_OVERLAP_H
#define MPC_OVERLAP_H

#include "ir.h"
#include "map.h"
#include "uses.h"

/* --- The ops of a function, to be listed anew: overlap.c --- */

/* Ops that stay adjacent: the collectives of a bucket, or their waits; else a single op. */
typedef struct {
    Op **op;
    int count;
    bool starts, waits, listed;
    bool leads;  /* a view that a message sends */
    bool relays; /* takes little time between a message and the next one: a wait, or what it makes ready */
    int next;    /* of one that relays: the number of the first unit that starts a message then, from 1 */
    bool calls;  /* a function that is not a kernel */
    bool works;  /* takes time: a product, a call, an op of the library */
    int behind;  /* of a start: how many units that work were listed before it */
} Unit;

/* The readers of a value, the last first. */
typedef struct Reader {
    const Op *op;
    const struct Reader *next;
} Reader;

typedef struct {
    Module *m;
    Func *f;
    int n;
    Unit *unit;
    Map number; /* of an op: its unit, from 1 */
    Map over;   /* of an op: the old state (Values) that it overwrites, or starts to overwrite */
    Map shown;  /* of a value: the ops (Reader) that read it, or a view of it */
    Uses uses;
    int begin;  /* the units before it are listed */
    int worked; /* how many of those that are listed take time */
} List;

Unit *unit_of(const List *list, const Op *op); /* NULL: of no op of the function */

/* Finds the units that relay: relays.c. */
void find_relays(List *list);

/* The op after the message that begins with `first`. */
Op *after_message(const Op *first);

/* The largest number of a bucket in the program. */
int64_t last_bucket(const Module *m);

/* Marks what the loop over micro-batches of a pipeline may start: early.c. */
void start_early(Module *m, Func *step);

/* Starts the gathers of weights in the body f of a loop one iteration early: prefetch.c. */
void prefetch_weights(Module *m, Func *f, const Map *callers);

#endif
