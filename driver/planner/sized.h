/* sized.h -- the cost of a program, with its sizes as variables.
 *
 * A program serves all layouts that differ in sizes alone (structure.h), but is large.  What is asked of it are items
 * (step_cost.h) and bytes.  Each of their quantities is a sum of terms: a number, times the sequences of a micro-batch
 * if it grows with them, over the ranks of the axes that split it.  So these are read once (sized_read.c), the program
 * goes, and a layout costs arithmetic alone (sized.c).
 *
 * All is in flat arrays, so that a process can send it to another one. */
#ifndef MPC_SIZED_H
#define MPC_SIZED_H

#include "block.h"
#include "structure.h"

/* On which sizes a quantity depends. */
typedef struct {
    Axes divided; /* of the program */
    Axes twice;   /* of these: both queries and keys are split over a ring */
    bool grows;
} Scale;

typedef struct {
    double value; /* of one sequence on one rank */
    Scale scale;
} Term;

typedef struct {
    int first, count;
} Range;

/* A side of a collective: see Packing in target.h. */
typedef struct {
    Term rows, row_bytes;
    int64_t long_row;
} SizedPacking;

/* Quantities of items that are one term. */
enum { SIZED_M, SIZED_N, SIZED_K, SIZED_COUNT, SIZED_QUERIES, SIZED_KEYS, SIZED_HEADS, SIZED_FLOPS, N_SIZED };

/* And sums: of its bytes, but those of a table, of which no more are read than written; of a message; of the results of
 * its op; of a loop, what turns save and hand on, and
 * what one that goes backward has beside these, and of messages that the turn before has started. */
enum { SUM_BYTES, SUM_TABLE, SUM_VOLUME, SUM_WRITTEN, SUM_SAVED, SUM_CARRIED, SUM_SCRATCH, SUM_FLIGHTS, N_SUMS };

typedef struct {
    CostItem item; /* without these quantities, op and body */
    Term term[N_SIZED];
    Range sum[N_SUMS];             /* of terms */
    Range body;                    /* of items */
    Range packing;                 /* of a message */
    bool grows;                    /* with the sequences of a micro-batch: it is not of weights */
    bool meets;                    /* a message: its ranks are all of its axes */
    bool is_zero;                  /* a message of zero */
    bool is_of_keys;               /* a message along a sequence that attention has, for it */
    bool is_late;                  /* a message of what another one has made */
    int repeat;                    /* of the pipeline, whose copies it runs; -1: none */
    double of_copies[MAX_REPEATS]; /* a message: the share that is of copies of each repeat */
    int64_t copies;                /* of a loop, that results have */
    bool reverse;                  /* and backward */
    bool is_micro;                 /* it runs micro-batches */
} SizedItem;

/* A dim that axes split evenly. */
typedef struct {
    int64_t size;
    Scale scale;
    bool is_once; /* not in micro-batches: it counts with zero alone */
} SizedDim;

/* Without stages one list, of the step; else of the actions of the first stage, and of the last. */
enum { MOST_LISTS = 2 * N_ACTION_KINDS };

typedef struct Sized {
    PlanProgram key;
    PlanLayout layout;         /* that was compiled */
    int64_t sequences;         /* of a micro-batch of it */
    bool is_irregular;         /* its quantities are no such sums: it has none */
    const char *refused;       /* why that layout cannot be compiled */
    int naxes, axis[MAX_AXES]; /* of the program: which axis of the planner each is */
    int messages;
    Range list[MOST_LISTS];
    Range held;                      /* what is in memory when the last micro-batch ends, but of copies of a repeat */
    Range held_of[MAX_REPEATS];      /* and of these */
    Range kept[N_KEPT][MAX_REPEATS]; /* what a copy keeps, where backward actions are divided */
    int items, terms, packings, dims;
    SizedItem *item;
    Term *term;
    SizedPacking *packing;
    SizedDim *dim;
    struct Sized *next;
} Sized;

bool has_actions(const Planner *p, const Sized *s);

/* The program of the layout, which is compiled when it is asked for the first time; an irregular one each time, and
 * with these sizes alone. */
typedef void (*SizedVisit)(void *context, const Sized *s);
void with_sized(Planner *p, const PlanLayout *layout, BlockOf of, SizedVisit visit, void *context);

const Sized *known_sized(const Planner *p, const PlanLayout *layout, BlockOf of); /* NULL: it is to be compiled */
bool serves_sizes(const Planner *p, const Sized *s, const PlanLayout *layout, BlockOf of); /* one with its key */
const Sized *find_sized(Planner *p, const PlanLayout *layout, BlockOf of); /* compiles it, if it is not known */
void keep_sized(Planner *p, const Sized *s); /* a copy of one that another process has compiled */

/* sized_read.c: of a module with the sizes of s->layout; arrays are of the arena.  is_fixed: for these sizes alone. */
void read_sized(const Planner *p, Sized *s, Module *m, const Classes *classes, bool is_fixed, Arena *arena);

/* A program with the sizes of a layout. */
typedef struct {
    const Sized *s;
    Arena *arena;
    RankMesh mesh;
    bool packs;                               /* are tensors in memory as they are in the program? */
    double sequences, inverse[1 << MAX_AXES]; /* by set of axes: 1 / their ranks */
    StepCost cost;                            /* for list_seconds() */
} Sizing;

/* like: whose mesh it is in. */
void start_sizing(Sizing *z, const Planner *p, const Sized *s, const PlanLayout *like, Arena *arena);
double sum_of(const Sizing *z, Range terms);
double packed_by(const Sizing *z, const SizedPacking *packing); /* bytes */
CostItem sized_item(const Sizing *z, const SizedItem *from);
CostList *sized_list(const Sizing *z, Range items); /* its i-th is of s->item[items.first + i] */

#endif
