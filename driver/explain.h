/* explain.h -- internals of mpc explain.
 *
 *   explain.c           the tensor's types after each pass, and the reasons
 *   explain_program.c   its collectives and memory in the final program
 */
#ifndef MPC_EXPLAIN_H
#define MPC_EXPLAIN_H

#include "report.h"

enum { MAX_FACETS = 8, MAX_REASONS = 32 };

/* One representation of the tensor in the program. */
typedef struct {
    const char *what;
    Type type;
} Facet;

typedef struct {
    Run *run;
    Module *m;
    Settings settings;
    const Param *param; /* NULL: a value, known by its path */
    Name path;
    int count, nbefore; /* number of facets after this pass, and after the previous one */
    Facet now[MAX_FACETS], before[MAX_FACETS];
    int nreasons; /* for the changes of this pass */
    const char *reason[MAX_REASONS];
} Explain;

/* The collectives on the tensor, and its memory; the module has been through all passes. */
void print_program_facts(Explain *e);

#endif
