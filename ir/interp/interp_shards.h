/* interp_shards.h -- tensors of the reference interpreter, on many ranks at once, and how it
 * walks over it.  Shared by the files interp*.c.
 *
 * A rank's shard is row-major over the rank's own elements, without padding, so the shards of a dim whose size its axes
 * do not divide differ in size (some may be empty).  In a placed run, however, a shard includes the padding of split
 * dims, as in the generated loops, with arbitrary numbers that must not affect results.  Along every dim the elements
 * are in ascending global order.  Shards are never changed once computed, so they may be shared.
 */
#ifndef MPC_INTERP_SHARDS_H
#define MPC_INTERP_SHARDS_H

#include "interp.h"
#include "interp_number.h"
#include "map.h"

typedef struct {
    int64_t size[MAX_RANK], stride[MAX_RANK];
    int64_t count;
    double *data;
} Shard;

typedef struct {
    const Type *type;
    Shard *shard;   /* one for each rank */
    Shard *tangent; /* in forward mode, tangents that are not zero, in shards of the same sizes; else NULL */
} Sharded;

typedef struct Memory Memory;
typedef struct ActionRun ActionRun;

/* One call of a function with storage. */
typedef struct {
    int64_t base;     /* its frame */
    int64_t *pointer; /* its pointer arguments: addresses, the same on all ranks */
} Activation;

typedef struct {
    Module *m;
    Arena arena; /* all that one run allocates */
    int ranks;
    int axis_step[MAX_AXES]; /* from a rank to its neighbour on the axis */
    const RunOptions *options;
    const Numbers *numbers;
    Memory *memory; /* NULL: values have no storage, as in kernels */
    Activation now;
    Map slots;             /* of the values of each function that has run */
    const char *iteration; /* see Observation.iteration */
    const Func *ending;    /* of a loop: in its last iteration, which starts nothing for a next one */
    uint64_t shaken;       /* so many values, see Shaking */
    RankSet running;       /* the function at hand runs on these alone */
    ActionRun *action;     /* the action of a schedule that `running` does; NULL: none */
    int depth;             /* of calls */
    const Func *func;      /* for messages */
    const Op *op;
} Interp;

/* Reports why the op cannot be run; false. */
bool cannot_run(Interp *in, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- Ranks and shards: interp_shards.c ------------------------------------------------------ */
int coordinate(const Interp *in, int rank, int axis);
bool same_place(const Dim *a, const Dim *b); /* does every rank hold the same elements of both? */

/* The block of a dim that a rank holds: its index among the ranks along the dim's axes. */
int64_t block_of(const Interp *in, const Dim *dim, int rank);
bool rank_runs(const Interp *in, int rank); /* in a split loop: is it the one that runs? */
/* The block that holds an element of a dim, and the element's index in that shard. */
int64_t block_with(const Interp *in, const Dim *dim, int64_t position, int64_t *place);
/* The rank that holds a block and has coordinate 0 on all other axes. */
int rank_of_block(const Interp *in, const Dim *dim, int64_t block);
/* The positions in the whole tensor of a shard's elements along a dim, ascending. */
int64_t *positions_of(Interp *in, const Dim *dim, int rank);
/* The distances from a rank to all ranks of its group along the axes, if it is the first of them; the first is 0. */
int *ranks_along(Interp *in, Axes axes, RankSet on, int *count);
RankSet ranks_of(const Interp *in, const Type *type);
int first_rank(RankSet on, int axis); /* 0 on other axes */
bool rank_holds(const Interp *in, const Type *type, int rank);

Sharded new_sharded(Interp *in, const Type *type); /* zeros; fails on impossible splits: data is NULL */
Sharded shard_tensor(Interp *in, const Tensor *tensor, const Type *type, uint64_t seed); /* makes the shards */
Tensor whole_tensor(Interp *in, const Sharded *held);                                    /* malloc'ed */
bool copies_agree(Interp *in, const Sharded *held, Name name);
double unwritten_number(const Interp *in, DType dtype); /* the contents of padding that no op wrote */

/* --- Walking over a space: interp_walk.c -------------------------------------------------- */
enum { MAX_WALK = 2 * MAX_RANK + 1, MAX_WALKERS = 16 };

/* Iterates over a space of named dims and keeps the offset of the present element in each of several tensors.  The last
 * dim is iterated by the caller: `row` points, `step` apart. */
typedef struct {
    int dims, walkers;
    Name name[MAX_WALK];
    int64_t size[MAX_WALK], at[MAX_WALK];
    int64_t stride[MAX_WALKERS][MAX_WALK];
    int64_t offset[MAX_WALKERS];
    int64_t row, step[MAX_WALKERS];
    double *data[MAX_WALKERS];
} Walk;

/* On one rank: the dims of one tensor, and of another (NULL: none), with these tensors. */
#define WALK(rank, dims, more, ...) walk_over((rank), (dims), (more), (const Sharded *const[]){ __VA_ARGS__, NULL })
Walk walk_over(int rank, const Sharded *dims, const Sharded *more, const Sharded *const walked[]);

void walk_rest(Walk *w, const Sharded *x, int rank, Name but, Name and_but); /* all but two, then a row of 1 */
int walk_tensor(Walk *w, const Sharded *x, int rank);                        /* ... then all tensors: its number */
bool walk_begin(Walk *w);                                                    /* false if there is no point */
bool walk_next(Walk *w);
static inline double *element(const Walk *w, int tensor, int64_t i)
{
    return w->data[tensor] + (w->offset[tensor] + i * w->step[tensor]);
}

/* --- Functions: interp.c ------------------------------------------------------------------ */
bool run_func(Interp *in, const Func *f, const Sharded args[], Sharded results[]);
bool run_op(Interp *in, const Op *op, const Sharded args[], Sharded results[]);
const Func *callee_of(Interp *in, const Op *op); /* NULL after reporting */

/* --- Loops: interp_loop.c ----------------------------------------------------------------- */
bool run_loop(Interp *in, const Op *op, const Sharded args[], Sharded results[]);
bool is_sliced(const Type *type, const Dim *dim); /* by a loop: then the dim is the first one, and whole on all ranks */
Sharded element_of(Interp *in, const Sharded *x, int64_t at); /* along the first dim; shares the memory */

/* --- Schedules: interp_schedule.c --------------------------------------------------------- */

/* Runs the micro-batches of a pipeline as its ranks do: action by action, with the messages and slots of the schedule.
 */
bool run_schedule(Interp *in, const Op *loop, const Func *micro, const Sharded args[], Sharded results[]);

/* In an action: does its rank run the op?  Messages are events of their own.  Where it does not, the results of the op
 * are what messages have brought, or nothing. */
bool runs_in_action(const Interp *in, const Op *op);
void leave_results(Interp *in, const Op *op, Sharded results[]);
bool is_left_out(const Interp *in, const Value *value); /* of the results of a call: nobody on its rank needs it */
void note_leaving(Interp *in, const Op *loop, const Sharded carried[]); /* what a split loop hands on */

/* --- Places in memory: interp_storage.c ---------------------------------------------------- */

/* Starts a program: puts its parameters into their storage. */
bool begin_memory(Interp *in, const Func *program, const Sharded params[]);
/* Ends it: checks that results are in their storage, new state in that of the old, and other state is unchanged. */
bool end_memory(Interp *in, const Func *program, const Sharded params[], const Sharded results[]);

/* Before an op: checks its operands in memory.  After it: writes its results to their storage. */
bool read_operands(Interp *in, const Op *op, const Sharded args[]);
bool write_results(Interp *in, const Op *op, const Sharded results[]);

/* A call or a loop of a function with a frame: the addresses of operands and results of the next iteration. */
typedef struct {
    const Op *op;
    const Func *callee;
    Activation outer;
    int64_t iterations;    /* on the rank that runs them */
    int64_t *carried;      /* addresses of the carried values for the next iteration */
    struct Flight **first; /* of those that are in flight before the loop; NULL: of others */
} Iterations;
bool begin_iterations(Interp *in, const Op *op, const Func *callee, Iterations *t);
bool receive_operand(Interp *in, Iterations *t, int i, const Sharded *value); /* its i-th operand, from another rank */
void begin_iteration(Interp *in, Iterations *t, int64_t at);
void end_iteration(Interp *in, Iterations *t);

/* Of the value in the function at hand. */
int64_t address_of(const Interp *in, const Value *value);
bool is_inside(Interp *in, const Value *value, int64_t address, int64_t bytes); /* of the arena */

/* Copies bytes, with the elements in them; forgets what is in the frame of a call.  On the ranks that run. */
void copy_bytes(Interp *in, int64_t from, int64_t to, int64_t bytes);
bool forget_frame(Interp *in, const Op *call, const Func *callee);

/* One end of a message. */
typedef struct {
    const Value *value;
    int64_t address;
    int rank;
} MessageEnd;
bool pass_message(Interp *in, const MessageEnd *from, const MessageEnd *to, const Shard *shard);

/* What is carried, `count` values, goes to the rank that runs from now on. */
void enter_rank(Interp *in, const Dim *dim, int at, Sharded carried[], int count);

/* Ranks that run fewer copies than others leave the rest of a stacked result unwritten. */
void fill_unwritten(const Interp *in, Sharded *held);

/* --- Ops, by family: each computes one rank's shard of the results, or all shards ------------ */
bool run_pointwise(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_dropout(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_leaf(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_dot(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_reduction(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_view(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_pad(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_concat(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_gather(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_scatter_add(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_rope(Interp *in, const Op *op, const Sharded args[], Sharded *y);
bool run_cumulative(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_top_k(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_place(Interp *in, const Op *op, const Sharded *x, Sharded *y);
bool run_routed(Interp *in, const Op *op, const Sharded args[], Sharded *y); /* dispatch, combine, collect */
bool run_attend(Interp *in, const Op *op, const Sharded args[], Sharded y[2]);
bool run_attend_grad(Interp *in, const Op *op, const Sharded args[], Sharded y[3]);
bool run_attend_bias_grad(Interp *in, const Op *op, const Sharded args[], Sharded y[1]);
bool run_collective(Interp *in, const Op *op, const Sharded *x, Sharded *y);

/* interp_blocks.c: is x what a product of 8 bits makes of `from`? */
bool is_rounded_in_blocks(const Interp *in, const Op *dot, const Type *type, const Shard *x, const Shard *from);

/* interp_over.c: is the parameter, or a value computed from it, reduced or broadcast in the kernel, but for reductions
 * of the row that is read?  Then it may be read again after results have been written. */
bool is_read_after_writing(Interp *in, const Func *kernel, Value *param);

/* 1, or a random number close to it: the number-th of value `value`. */
double perturbation(const Shaking *shaking, uint64_t value, uint64_t number);
void perturb(Interp *in, const Shaking *shaking,
             const Sharded *held); /* all elements, equally where ranks have copies */

/* --- Forward mode ------------------------------------------------------------------------- */

/* The tangents of the results of an op (no call, no loop), from those of its operands. */
bool run_tangent(Interp *in, const Op *op, const Sharded args[], Sharded results[]);
Sharded tangent_of(Interp *in, const Sharded *x); /* as a separate tensor; zeros if it has none */

bool run_attend_tangent(Interp *in, const Op *op, const Sharded args[], Sharded y[2]);

#endif
