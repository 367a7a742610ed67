/* autodiff.h -- shared by autodiff.c (gradients of functions), hoist.c (of scans) and step.c (the training step around
 * them), measures.c (what it says of experts) and precision.c. */
#ifndef MPC_AUTODIFF_H
#define MPC_AUTODIFF_H

#include "ir.h"
#include "map.h"

/* A differentiated function.  `fwd` is the function itself; its last `saves` results are residuals.  The parameters of
 * `bwd` are, in order: the gradients of the active carried results; one accumulator for each gradient of `shared`; the
 * gradients of the other results; the residuals; the parameters of fwd that it reads.  Its results: the gradients of
 * the active carried parameters, the accumulators, the gradients of the other active parameters. */
typedef struct {
    Func *fwd, *bwd;
    int carried;  /* of a loop's body: number of carried parameters; 0 for a called function */
    bool *active; /* of each parameter of fwd: does it have a gradient? */
    bool *shared; /* of each: shared by all iterations of the loop, so that its gradients are summed */
    bool *given;  /* of each result of fwd: does bwd take its gradient? */
    bool *unread; /* of each parameter of fwd: unused, so its gradient is zero */
    Values read;  /* parameters of fwd that bwd reads */
} Derivative;

/* The floating-point values of the model, and of the functions that it calls, on whose gradients the loss depends. */
void find_useful(const Module *m, const Func *model, Map *useful);

/* Converts a gradient to the type of its value, in the same memory order: sums over extra dims, broadcasts over missing
 * ones.  `dtype`: of the result. */
Value *finish_gradient(Builder *b, Value *gradient, const Type *type, DType dtype);

/* Does a loop read the same operand in each iteration?  False of calls. */
static inline bool is_captured(const Op *op, int operand)
{
    const Dims *dims = &op->attrs.dims;
    return operand >= op->attrs.carried && dims->count && find_dim(&arg(op, operand)->type, dims->dim[0].name) < 0;
}

/* Is the loss differentiated with respect to it? */
static inline bool has_gradient(const Module *m, Port port)
{
    return is_trained(m, port) || port_is_measured(port.kind);
}

/* measures.c: adds what the step returns of counts, results of the op that calls `of`. */
void add_measures(Builder *b, const Func *of, const Op *counts, Value *loss_scale);

/* hoist.c: products that a scan's backward sums up over the places become one, after it. */
void hoist_products(Module *m);

/* Writes STEP around the differentiated model. */
void write_step(Module *m, const Derivative *model);

#endif
