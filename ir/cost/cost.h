/* cost.h -- cost of a compiled step on one rank: work, messages, memory.
 *
 * Everything is computed from the final program, op by op; nothing is estimated by a separate formula.
 *
 *   cost.c          execution counts of ops, their work, volumes of collectives
 *   step_cost.c     the step as a list of timed items: see step_cost.h
 *   step_time.c     how long it takes on a machine: see step_time.h, machine.h; clock.c, bars.c are parts of it
 *   cost_class.c    classes of tensors: weights, gradients, activations, ...
 *   cost_memory.c   contents of the arena at the peak
 */
#ifndef MPC_COST_H
#define MPC_COST_H

#include "ir.h"
#include "kinds/kinds.h"
#include "map.h"
#include "storage.h"

/* What numbers are computed in: a dtype, or 8 bits, to which operands of some products are rounded. */
enum { E4M3 = N_DTYPES, N_PRECISIONS };
const char *precision_name(int number);

/* --- Ops that run ------------------------------------------------------------------------------- */

/* Called for each op that one call of `f` runs, those in kernels too, with the number of times it runs on a rank: on
 * the mean of all, where ranks along an axis differ. */
typedef void (*CostVisit)(void *context, const Func *f, const Op *op, double times);
void visit_program(const Module *m, const Func *f, CostVisit visit, void *context);

/* The ranks, of those that run f, that run an op of it, as a set; all, where ranks are of one kind. */
uint64_t ranks_that_run(const Module *m, const Func *f, const Op *op, uint64_t around);

int64_t count_ranks(const Module *m, Axes axes); /* that differ on these axes only; ~0u: all there are */

/* The work of one op, in FLOPs: padding and masked elements of causal attention count in `whole`, or not at all. */
typedef struct {
    double rank;  /* on one rank */
    double alike; /* of these, redundant: (n - 1) / n where n ranks compute the same */
    Axes axes;    /* of the redundant ranks */
} Work;
Work op_work(Module *m, const Func *f, const Op *op); /* an op of f; NULL: of any function */

double flops_run(Module *m, const Func *f); /* of one call, on one rank */

/* The traffic of a collective.  `volume` is as in the literature (ZeRO, arXiv 1910.02054, section 7): a gather or a
 * scatter costs the bytes of the tensor as the group holds it, an all-reduce twice that.  Each of n ranks sends (n - 1)
 * / n of it. */
typedef struct {
    int64_t ranks;
    double volume, sent; /* bytes */
} Traffic;
Traffic op_traffic(const Module *m, const Op *op);
bool joins_message(const Op *op); /* sent in one message with the op before it */

/* --- Classes of tensors ------------------------------------------------------------------------- */

typedef enum {
    MASTER_WEIGHTS,  /* f32, of the optimizer, where the model computes with narrower ones */
    WEIGHTS,         /* of the model, including gathered ones */
    GRADIENTS,       /* of weights, from the backward pass to the update */
    OPTIMIZER_STATE, /* moments, loss scale */
    INPUTS,          /* tokens, labels, scalars of the step */
    ACTIVATIONS,     /* made by the forward pass and read by the backward pass */
    WORKSPACE,       /* short-lived: inside a layer, gradients of activations, kernels */
    N_CLASSES
} TensorClass;
extern const char *const class_name[N_CLASSES];

typedef struct {
    Module *m;
    Map of;    /* Value -> its class + 1 */
    Map param; /* Value -> its Param, or that of its gradient or state */
    Map lives; /* Func -> when its values are live: see cost_memory.c */
} Classes;

Classes classify_tensors(Module *m); /* the module has been through the memory pass */
TensorClass class_of(const Classes *classes, const Value *value);
const Param *param_behind(const Classes *classes, const Value *value); /* NULL: it is of no parameter */

/* Adds to `forward` the values and ops that `value` is computed from, in its function and its callees: for the loss,
 * the forward pass. */
void mark_forward(const Module *m, Map *forward, const Value *value);

/* --- Memory -------------------------------------------------------------------------------------- */

/* A range of the arena, held by a value, a kernel's scratch (no value), or a loop's second buffer. */
typedef struct {
    int64_t begin, end;
    TensorClass kind;
    bool is_slots;      /* of a pipeline's micro-batches */
    const Value *value; /* NULL: scratch */
    const Op *op;       /* that made it; NULL: it outlives the step */
} Stretch;

typedef struct {
    int64_t arena;            /* the trainer allocates this */
    int64_t bytes[N_CLASSES]; /* in use at the peak of the step, each byte counted once */
    int64_t slots;            /* of the activations: what micro-batches of a pipeline keep */
    int64_t unused;           /* of the arena, at that time */
    const Op *op;             /* running at the peak of the step, and its function */
    const Func *func;
    int nheld;
    Stretch *held; /* at the peak */
} MemoryUse;

MemoryUse memory_use(Classes *classes, Kinds *kinds, int kind); /* of one kind of rank */

/* Called for each op of the step in its order, those of a loop's body once: what is in use while it runs, each byte
 * counted once.  Kernels are one op. */
typedef void (*MemoryVisit)(void *context, const Func *f, const Op *op, const int64_t bytes[N_CLASSES]);
void visit_memory(Classes *classes, Kinds *kinds, int kind, MemoryVisit visit, void *context);

/* Bytes in use at the peak of a program; 0: there is none. */
int64_t program_peak(Classes *classes, Kinds *kinds, int kind, FuncRole role);

/* On that kind of rank; less than end - begin for interleaved tensors. */
int64_t bytes_of_held(const Module *m, const Stretch *held, int kind);

/* Where a value comes from: the op that made it, in the function in which it was made. */
const Op *origin_of(const Module *m, const Value *value);

#endif
