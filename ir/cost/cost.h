/* cost.h -- what a compiled program costs one rank in a step: work, messages, memory.
 *
 * Everything is computed from the final program, op by op; nothing is estimated by a separate formula.
 *
 *   cost.c          which ops run how often, their work, what a collective moves
 *   cost_class.c    classes of tensors: weights, gradients, activations, ...
 *   cost_memory.c   contents of the arena at the peak
 */
#ifndef MPC_COST_H
#define MPC_COST_H

#include "ir.h"
#include "map.h"
#include "storage.h"

/* --- Ops that run ------------------------------------------------------------------------------- */

/* Called for each op that one call of `f` runs, those in kernels too, with the number of times it runs. */
typedef void (*CostVisit)(void *context, const Func *f, const Op *op, double times);
void visit_program(const Module *m, const Func *f, CostVisit visit, void *context);

int64_t count_ranks(const Module *m, Axes axes); /* that differ on these axes only; ~0u: all there are */

/* The work of one op, in FLOPs: padding and what causal attention masks count as work of the whole and not at all. */
typedef struct {
    double rank;  /* on one rank */
    double alike; /* of these, what other ranks compute as well: (n - 1) / n where n ranks do the same */
    Axes axes;    /* along which they do */
} Work;
Work op_work(Module *m, const Op *op);

/* What a collective moves.  `volume` is what papers count (ZeRO, arXiv 1910.02054, section 7): a gather or a scatter
 * costs the bytes of the tensor as the group holds it, an all-reduce twice that.  Each of n ranks sends (n - 1) / n of
 * it. */
typedef struct {
    int64_t ranks;
    double volume, sent; /* bytes */
} Traffic;
Traffic op_traffic(const Module *m, const Op *op);
bool joins_message(const Op *op); /* sent in one message with the op before it */

/* --- What tensors are for ----------------------------------------------------------------------- */

typedef enum {
    MASTER_WEIGHTS,  /* f32, as the optimizer holds them, where the model computes with narrower ones */
    WEIGHTS,         /* as the model computes with them, gathered ones too */
    GRADIENTS,       /* of weights, from the backward pass to the update */
    OPTIMIZER_STATE, /* moments, loss scale */
    INPUTS,          /* tokens, labels, scalars of the step */
    ACTIVATIONS,     /* made by the forward pass, and read by the backward pass */
    WORKSPACE,       /* what no op reads for long: inside a layer, of activations' gradients, of kernels */
    N_CLASSES
} TensorClass;
extern const char *const class_name[N_CLASSES];

typedef struct {
    Module *m;
    Map of;    /* Value -> its class + 1 */
    Map param; /* Value -> the Param that it is, or whose gradient or state it is */
} Classes;

Classes classify_tensors(Module *m); /* the module has been through the memory pass */
TensorClass class_of(const Classes *classes, const Value *value);
const Param *param_behind(const Classes *classes, const Value *value); /* NULL: it is of no parameter */

/* Puts into `forward` the values and ops that `value` is made of, in its function and in those that this one calls: of
 * the loss, the forward pass. */
void mark_forward(const Module *m, Map *forward, const Value *value);

/* --- Memory -------------------------------------------------------------------------------------- */

/* A stretch of the arena, held by a value, a kernel's scratch (no value), or a loop's second buffer (neither op's). */
typedef struct {
    int64_t begin, end;
    TensorClass kind;
    const Value *value; /* NULL: scratch */
    const Op *op;       /* that made it; NULL: it outlives the step */
} Stretch;

typedef struct {
    int64_t arena;            /* the trainer allocates this */
    int64_t bytes[N_CLASSES]; /* in use at the peak of the step, each byte counted once */
    int64_t unused;           /* of the arena, at that time */
    int64_t peak[N_ROLES];    /* in use at most while STEP, EVAL, PREDICT run */
    const Op *op;             /* that runs at the peak of the step, and its function */
    const Func *func;
    int nheld;
    Stretch *held; /* at the peak */
} MemoryUse;

MemoryUse memory_use(const Classes *classes);
int64_t bytes_of_held(const Module *m,
                      const Stretch *held); /* less than from begin to end where tensors lie side by side */

/* Where a value comes from: the op that made it, in the function in which it was made. */
const Op *origin_of(const Module *m, const Value *value);

#endif
