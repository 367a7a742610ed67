/* interp_parts.h -- how the reference interpreter holds a tensor on many ranks at once, and how it
 * walks over it.  Shared by the files interp*.c.
 *
 * A rank's part is row-major over the elements that are the rank's own; there is no padding, so
 * the parts of a dim whose size its axes do not divide differ in size (some may be empty).  But in a run
 * through places in memory, a part has the padding of split dims too, as the generated loops do: some number is
 * there, and nobody may notice.  Along every dim the elements are in ascending global order.  Parts are never changed
 * once computed, so they may be shared.
 */
#ifndef MPC_INTERP_PARTS_H
#define MPC_INTERP_PARTS_H

#include "interp.h"
#include "interp_number.h"

typedef struct {
    int64_t size[MAX_RANK], stride[MAX_RANK];
    int64_t count;
    double *data;
} Part;

typedef struct {
    const Type *type;
    Part *part;    /* one for each rank */
    Part *tangent; /* in forward mode, where it moves: by how much, in parts of the same sizes; else NULL */
} Sharded;

typedef struct Slots Slots;
typedef struct Memory Memory;

/* One call of a function whose values lie in memory. */
typedef struct {
    int64_t base;     /* its frame */
    int64_t *pointer; /* what it is given: addresses, the same on all ranks */
} Activation;

typedef struct {
    Module *m;
    Arena arena; /* all that one run allocates */
    int ranks;
    int axis_step[MAX_AXES]; /* from a rank to its neighbour on the axis */
    const RunOptions *options;
    const Numbers *numbers;
    Memory *memory; /* NULL: values have no places, as in kernels */
    Activation now;
    Slots *plans;
    const char *iteration; /* see Seen.iteration */
    uint64_t shaken;       /* so many values, see Tangents.shake */
    Stages running;        /* the function at hand runs on these alone */
    int depth;             /* of calls */
    const Func *func;      /* for messages */
    const Op *op;
} Interp;

/* Reports that the op being run cannot be, and why; false. */
bool cannot_run(Interp *in, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- Ranks and parts: interp_parts.c ------------------------------------------------------ */
int coordinate(const Interp *in, int rank, int axis);
bool is_splittable(const Interp *in, const Dim *dim); /* its blocks come out even */
bool same_place(const Dim *a, const Dim *b);          /* every rank holds the same elements of both */

/* Which block of a dim a rank holds: its place among the ranks that the dim's axes span. */
int64_t block_of(const Interp *in, const Dim *dim, int rank);
/* Who holds an element of a dim: the block, and the element's place in the block's part. */
int64_t block_with(const Interp *in, const Dim *dim, int64_t position, int64_t *place);
/* The ranks of a block are those whose rank is this, up to coordinates on other axes. */
int rank_of_block(const Interp *in, const Dim *dim, int64_t block);
/* The positions in the whole tensor of a part's elements along a dim, ascending. */
int64_t *positions_of(Interp *in, const Dim *dim, int rank);
/* All sums of one coordinate on each of the axes, as distances between ranks; the first is 0. */
int *ranks_along(Interp *in, Axes axes, Stages on, int *count);
Stages stages_of(const Interp *in, const Type *type);
int first_stage(Stages on, int axis); /* 0 on other axes */
bool rank_holds(const Interp *in, const Type *type, int rank);

Sharded hold(Interp *in, const Type *type); /* zeros; fails on impossible splits: data is NULL */
Sharded deal_out(Interp *in, const Tensor *tensor, const Type *type, uint64_t seed); /* makes the parts */
Tensor put_together(Interp *in, const Sharded *held);                                /* malloc'ed */
bool copies_agree(Interp *in, const Sharded *held, Name name);
double padding_number(const Interp *in, DType dtype); /* what lies behind the end of a dim where nothing was computed */

/* --- Walking over a space: interp_walk.c -------------------------------------------------- */
enum { MAX_WALK = 2 * MAX_RANK + 1, MAX_WALKERS = 10 };

/* Moves through a space of named dims and keeps, for each of several tensors, the offset of the
 * element that meets the point.  The last dim is the caller's own loop: `row` points, `step` apart. */
typedef struct {
    int dims, walkers;
    Name name[MAX_WALK];
    int64_t size[MAX_WALK], at[MAX_WALK];
    int64_t stride[MAX_WALKERS][MAX_WALK];
    int64_t offset[MAX_WALKERS];
    int64_t row, step[MAX_WALKERS];
} Walk;

void walk_dim(Walk *w, Name name, int64_t size); /* if the space has it not already; first all dims ... */
void walk_dims(Walk *w, const Type *type, const Part *part);
void walk_rest(Walk *w, const Type *type, const Part *part, Name but, Name and_but); /* dims but two, then a row of 1 */
int walk_tensor(Walk *w, const Type *type, const Part *part); /* ... then all tensors: its number */
bool walk_begin(Walk *w);                                     /* false if there is no point */
bool walk_next(Walk *w);

/* --- Places in memory: interp_storage.c ---------------------------------------------------- */

/* A program begins: its parameters are where it expects them. */
bool begin_memory(Interp *in, const Func *program, const Sharded params[]);
/* Its results have to lie where it says, new state where the old was, and no state of others may be touched. */
bool end_memory(Interp *in, const Func *program, const Sharded params[], const Sharded results[]);

/* Around an op: what it reads has to be there; what it makes is put in its place. */
bool read_operands(Interp *in, const Op *op, const Sharded args[]);
bool write_results(Interp *in, const Op *op, const Sharded results[]);

/* A call or a loop of a function with a frame.  Between iterations, where operands and results of the next one lie. */
typedef struct {
    const Op *op;
    const Func *callee;
    Activation outer;
    int64_t *carried; /* where the next iteration finds what is carried */
} Iterations;
bool begin_iterations(Interp *in, const Op *op, const Func *callee, Iterations *t);
void begin_iteration(Interp *in, Iterations *t, int64_t at, int64_t left);
void end_iteration(Interp *in, Iterations *t);

/* --- Ops, by family: each computes one rank's part of the results, or all parts ------------ */
bool run_pointwise(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_dropout(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_leaf(Interp *in, const Op *op, Sharded *y);
bool run_dot(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_reduction(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_view(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_pad(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_concat(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_gather(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_scatter_add(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_rope(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_attend(Interp *in, const Op *op, const Sharded args[], Sharded y[2]);
bool run_attend_grad(Interp *in, const Op *op, const Sharded args[], Sharded y[3]);
bool run_collective(Interp *in, const Op *op, const Sharded *x, Sharded *y);

/* --- Forward mode ------------------------------------------------------------------------- */

/* What the results of an op (no call, no loop) move by where its operands move. */
bool run_tangent(Interp *in, const Op *op, const Sharded args[], Sharded results[]);
Sharded tangent_of(Interp *in, const Sharded *x); /* as a tensor of its own; zeros where it does not move */

/* 1, or in a run that is shaken close to it, at random: the number-th of this seed. */
double shaken(const Tangents *tangents, uint64_t seed, uint64_t number);
bool run_attend_tangent(Interp *in, const Op *op, const Sharded args[], Sharded y[2]);

#endif
