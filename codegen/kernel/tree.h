/* tree.h -- a row kernel as a list of steps (load, compute, add up, store, loop), before it is printed.  Both targets
 * print the same kinds of steps.
 *
 * The planner of a target says which loops there are and who runs their iterations; its printer has a row for each kind
 * of step.  A softmax, where the lanes of a row share its sums:
 *
 *     LOOP rows
 *         START most              START sum
 *         LOOP row, by lanes      LOOP row, by lanes      LOOP row, by lanes
 *             LOAD x                  LOAD x                  LOAD x
 *             ADD x to most           LET exp                 LET exp, div
 *                                     ADD exp to sum          STORE div
 *         COMBINE                 COMBINE
 *
 * The same with a sum that is added up beside the maximum (phases.c):
 *
 *     LOOP rows
 *         START most, sum
 *         LOOP row, by lanes      LOOP row, by lanes
 *             LOOP pack               LOAD x
 *                 LOAD x              LET exp, div
 *                 ADD x to most       STORE div
 *             RESCALE sum
 *             LOOP pack
 *                 LOAD x
 *                 LET exp
 *                 ADD exp to sum
 *         COMBINE most
 *         COMBINE sum
 */
#ifndef MPC_TREE_H
#define MPC_TREE_H

#include "kernel.h"

typedef enum {
    STEP_LOAD,    /* a parameter's element, or a value that an earlier phase has kept */
    STEP_LET,     /* the value of an op */
    STEP_ROOM,    /* memory for what later steps keep */
    STEP_KEEP,    /* a value for later phases, the sum of one block of rows, or, without a value, operands of a row */
    STEP_START,   /* the initial value of a sum, or of those of a column */
    STEP_ADD,     /* an operand to a sum */
    STEP_RESCALE, /* a sum of exponentials, to the maximum so far: operand */
    STEP_COMBINE, /* the sums of all lanes, or of all blocks of rows */
    STEP_STORE,   /* a result */
    STEP_LOOP,    /* over dims; without dims: what a row has once */
    N_STEP_KINDS
} StepKind;

/* Who runs the iterations of a loop. */
typedef enum {
    BY_ONE,       /* one thread, in order */
    BY_THREADS,   /* all */
    BY_VECTORS,   /* the vectors of one thread: a loop for each set of dims that values have */
    BY_LANES,     /* the threads that share a row: one loop, in which values of fewer dims come several times */
    BY_PACK,      /* one of these: the neighbours that it has at one time */
    BY_CHUNKS,    /* threads, of FLAT_BLOCK elements each */
    BY_BLOCKS,    /* C: threads, of a block of rows each; GPU: blocks of threads */
    BY_ITS_BLOCK, /* one thread: the rows of its block */
    N_RUNNERS
} Runner;

typedef struct Step {
    StepKind kind;
    Node *node;    /* the value, or the sum; NULL: the row's operands */
    Node *operand; /* STEP_ADD adds it to `node` */
    Sink *sink;    /* the result of the kernel that the step sums or stores; else NULL */
    int uses;      /* LOAD in a loop: by the loop's other steps */
    DimSet dims;   /* LOOP */
    Runner runner;
    const char *low, *high;  /* LOOP: NULL: from the first to the last */
    const struct Step *loop; /* that it is in; of COMBINE: whose lanes; NULL: none */
    struct Step *body, *next;
} Step;

/* The end of a list of steps. */
typedef struct {
    RowKernel *k;
    Step *loop;
    Step **end;
} Steps;

Step *add_step(Steps *to, Step step);
Steps add_loop(Steps *to, Step loop);             /* returns the end of its body */
void mark_wanted(RowKernel *k, const bool has[]); /* values that these sinks need; NULL: all sinks */
void add_scalars(Steps *to);                      /* those wanted that are one number for the kernel */
/* One row, for the sinks that `has` names: its phases, in loops as `row` says, over the dims of a row. */
void add_row(Steps *to, const bool has[], Step row);

#endif
