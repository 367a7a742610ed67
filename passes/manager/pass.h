/* pass.h -- the pass manager: order, verification, dumps, timing.  Passes are independent of these. */
#ifndef MPC_PASS_H
#define MPC_PASS_H

#include "ir.h"

typedef struct {
    const char *name, *help;
    unsigned needs, forbids, removes; /* bits of ModuleState */
    void (*run)(Module *);
} Pass;

/* Properties of a module, computed from the module itself, so that `mpc opt` has them too. */
typedef enum {
    MODEL_FUNC = 1,
    STEP_FUNC = 2,
    KERNELS = 4,
    STORAGE = 8,
    TRAINS = 16,
    RESHARDS = 32, /* reshards not yet lowered to collectives */
    UNFUSED = 64   /* ops outside of kernels that must be in kernels */
} ModuleState;

extern const Pass passes[];
extern const int npasses;

typedef struct {
    const char *only;        /* comma-separated names, or NULL: all */
    const char *dump_dir;    /* receives NN-name.mir and NN-name.diff; NULL: no dumps */
    const char *stop_after;  /* the last pass to run; "lower": none; NULL: all */
    const char *start_after; /* the last pass that has already been run; NULL: none */
    const char *remarks;     /* the pass whose remarks are printed, "all", or NULL */
    bool unchecked;          /* without verification, of a program that nobody will run */
    FILE *times;             /* one line per pass; NULL: off */
    const char *before;      /* of one pass: the program's text before it; equal text is not parsed again; NULL: none */
    char **after;            /* receives the text after it, to be freed; NULL: not wanted */
} PassOptions;

/* Runs the passes in order.  After each: dump, verification, and, if the text is used, a check that it parses as the
 * same program.  False after reporting that a pass broke the module or that a dump could not be written. */
bool run_passes(Module *m, const PassOptions *options);

/* The index of a pass, or -1. */
int find_pass(const char *name);
bool is_listed(const char *names, const char *name); /* names: comma-separated; NULL names all */

typedef struct {
    const char *only;        /* comma-separated names, or NULL: all */
    const char *start_after; /* the last pass that has already been run; NULL: none */
    bool exact;              /* also modulo a prime: results must be equal */
    FILE *report;            /* one line per pass */
} VerifyOptions;

/* Runs the passes one by one on a small module, which they change, and compares the loss and all state of two steps
 * before and after each, with the interpreter on all virtual ranks (relative 1e-9; f64).  Reports the first pass that
 * changed a result, and the first value that differs. */
bool verify_passes(Module *m, const VerifyOptions *options);

/* Can that be done?  Numbers of inputs are drawn below their vocabularies, which are halved, but not below `fewest`,
 * until all that is computed from these numbers is an index of its dim; reports nothing.  `outside`: the dim that one
 * is still outside of, or NULL. */
bool make_runnable(Module *m, int64_t fewest, Name *outside);

#endif
