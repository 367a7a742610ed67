/* explain.h -- inside mpc explain; nobody else includes it.
 *
 *   explain.c           the tensor's types from pass to pass, and why
 *   explain_program.c   its collectives and memory in the final program
 */
#ifndef MPC_EXPLAIN_H
#define MPC_EXPLAIN_H

#include "report.h"

enum { MAX_FACETS = 8, MAX_REASONS = 32 };

/* One way in which the program holds the tensor. */
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
    int count, nbefore; /* of the facets after this pass, and after the one before */
    Facet now[MAX_FACETS], before[MAX_FACETS];
    int nreasons; /* for what this pass has changed */
    const char *reason[MAX_REASONS];
} Explain;

/* The collectives that touch the tensor, and its memory; the module has been through all passes. */
void print_program_facts(Explain *e);

#endif
