/* overlap.h -- shared by the files of the overlap pass. */
#ifndef MPC_OVERLAP_H
#define MPC_OVERLAP_H

#include "ir.h"
#include "map.h"
#include "uses.h"

/* --- The ops of a function, to be listed anew: overlap.c --- */

/* Ops that stay adjacent: the collectives of a bucket, or their waits; else a single op.  Times are in FLOPs of the
 * products that are computed meanwhile. */
typedef struct Unit {
    Op **op;
    int count;
    int needs, missing;         /* units that are listed before it; of these, that are not listed yet */
    struct Follower *followers; /* that need it */
    bool starts, waits, listed;
    bool leads;      /* a view that a message sends */
    bool urgent;     /* a message needs what it makes, but none of a weight */
    bool calls;      /* a function that is not a kernel */
    double work;     /* of a product or an op of the library, on one rank; of a call more than of any; else 0 */
    double message;  /* of the message that it starts */
    double arrival;  /* of that, once it is listed */
    int relay;       /* takes little time between a message and the next one: its number in the list, from 1 */
    uint64_t *after; /* the relays that it depends on, or is one of, as bits */
} Unit;

typedef struct Follower {
    Unit *unit;
    struct Follower *next;
} Follower;

/* Short ops from a wait to the start of the next message. */
typedef struct {
    int next;    /* the number of its unit, from 1 */
    double work; /* that does not depend on them */
    double left; /* of that, what is not listed */
} Relay;

/* Rules that make some functions faster, and others slower. */
typedef enum {
    IN_ORDER = 0,
    FIRST_COME = 1,  /* of waits for activations that have not come, that for the one which comes first */
    BEHIND_LAST = 2, /* what only gradients need is sent at once behind the last message that others need */
    N_POLICIES = 4
} Policy;

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
    const Op *loop; /* the only op that calls the function, if it is a loop; else NULL */
    int *ready;     /* the units of which nothing is missing, by their numbers from 0, in order */
    int nready;
    int call; /* the number of the first unit that calls a function and is not listed */
    Relay *relay;
    int relays;
    Policy policy;
    int urgent;            /* urgent messages for this iteration that have not been started */
    double now;            /* when those that are listed have been computed */
    double idle[MAX_AXES]; /* from when on no message of an activation is under way along the axis */
} List;

Unit *unit_of(const List *list, const Op *op); /* NULL: of no op of the function */

bool starts_activation(const Op *op); /* a message: of no weight, and no gradient of one */

/* Finds the urgent units, and the relays: relays.c. */
void find_relays(List *list);

/* Finds which units are listed before which: listing.c. */
void find_needs(List *list);

/* Finds the policy for which the last unit has run soonest, by the list's clock; returns when: listing.c. */
double choose_policy(List *list);

/* Puts the units in their new order. */
void list_anew(List *list);

/* How long an iteration of the loop whose body f is takes, in FLOPs: overlap.c. */
double iteration_time(Module *m, Func *f, const Op *loop);

/* The op after the message that begins with `first`. */
Op *after_message(const Op *first);

/* The largest number of a bucket in the program. */
int64_t last_bucket(const Module *m);

/* Marks what the loop over micro-batches of a pipeline may start: early.c. */
void start_early(Module *m, Func *step);

/* Starts the gathers of weights in the body f of a loop one iteration early: prefetch.c. */
void prefetch_weights(Module *m, Func *f, const Map *callers);

/* The loop carries what its body f makes for the next iteration; `first` is that of the first one.  Returns the new
 * parameter, which is called like `name`. */
Value *carry(Module *m, Func *f, Op *loop, Value *next, Value *first, Name name);

Func *function_with(const Module *m, const Op *op);

/* Starts the first messages of the body f of a loop in the iteration before, if it has any: borders.c. */
void cross_borders(Module *m, Func *f, const Map *callers);

/* The FLOPs of a product or an op of the library, on one rank; of a call more than of any; else 0: overlap.c. */
double work_of(Module *m, const Op *op);

#endif
