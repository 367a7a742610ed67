/* remedies.h -- options that make a program fit into less memory, and their cost: found by compiling it with them.
 */
#ifndef MPC_REMEDIES_H
#define MPC_REMEDIES_H

#include "driver.h"

#include "cost/machine.h"

/* A program that was compiled with some options more. */
typedef struct {
    const char *options; /* "--recompute full"; NULL: there is none */
    double bytes;        /* that a rank needs */
    double seconds;      /* of a step; NAN: no machine, or it does not say */
    double work, moved;  /* of a rank in a step: FLOPs; bytes that it sends, or moves from and to another tier */
    bool fits;
    bool rounds; /* sums of gradients */
} Remedy;

typedef struct {
    const Options *options; /* of the program that does not fit */
    double room;            /* bytes of a rank */
    bool is_of_arena;       /* which are for its arena alone, as with recompute auto */
    const Machine *machine; /* NULL: none */
} RemedyQuestion;

/* Those that alone are enough, the least time first and what rounds last, or else those that help, the least costly
 * kind first.  Together: several that are enough, and faster than one, or if nothing is enough, the least that there
 * is. */
typedef struct {
    int count;
    const Remedy *at;
    Remedy together; /* of no options: one is as good, or none helps */
} Remedies;

Remedies find_remedies(Run *run, RemedyQuestion question);

#endif
