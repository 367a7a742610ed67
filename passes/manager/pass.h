/* pass.h -- the pass manager: order, verification, dumps, timing.  A pass knows nothing of any of these. */
#ifndef MPC_PASS_H
#define MPC_PASS_H

#include "ir.h"

typedef struct {
    const char *name, *help;
    unsigned needs, forbids, removes; /* bits of Stage */
    void (*run)(Module *);
} Pass;

/* What a module holds; read off the module itself, so that `mpc opt` knows it too. */
typedef enum {
    MODEL_FUNC = 1,
    STEP_FUNC = 2,
    KERNELS = 4,
    STORAGE = 8,
    TRAINS = 16,
    RESHARDS = 32, /* which say what is wanted, and not yet by which collectives */
    UNFUSED = 64   /* ops outside of kernels that are computed in kernels */
} Stage;

extern const Pass passes[];
extern const int npasses;

typedef struct {
    const char *only;        /* comma-separated names, or NULL: all */
    const char *dump_dir;    /* NN-name.mir and NN-name.diff go there; NULL: nowhere */
    const char *stop_after;  /* the last pass to run; "lower": none; NULL: all */
    const char *start_after; /* the pass that has been run already; NULL: none */
    const char *remarks;     /* the pass whose remarks are printed, "all", or NULL */
    FILE *times;             /* one line a pass; NULL: nobody asked */
} PassOptions;

/* Runs the passes in order.  After each: dump, verification, and, where the text is
 * for somebody to read, the check that it reads back as the same program.  False if a pass broke the module or a dump
 * could not be written, after saying which. */
bool run_passes(Module *m, const PassOptions *options);

/* The index of a pass, or -1. */
int find_pass(const char *name);
bool is_listed(const char *names, const char *name); /* names: comma-separated; NULL names all */

typedef struct {
    const char *only;        /* comma-separated names, or NULL: all */
    const char *start_after; /* the pass that has been run already; NULL: none */
    bool exact;              /* modulo a prime too: what is computed has to be equal */
    FILE *report;            /* one line a pass */
} VerifyOptions;

/* Runs the passes one by one on a small module, which they change, and compares, before and after each, the loss and
 * every tensor that two steps leave behind, through the interpreter on every virtual rank (relative 1e-9; f64).
 * Names the first pass that changed the meaning, and the first value that differs. */
bool verify_passes(Module *m, const VerifyOptions *options);
bool can_be_run(Module *m); /* reports nothing */

/* A name that no function has, for a kernel made of the op: "k.h.mlp", "k.h.mlp.2". */
Name kernel_name(Module *m, const Op *op, const char *suffix);

/* A pass explains a decision, at an op: printed with its place in the .mdl where remarks are asked for. */
void remark(Module *m, const Op *op, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
