/* autodiff.h -- shared by autodiff.c (gradients of functions) and step.c (the training step around them). */
#ifndef MPC_AUTODIFF_H
#define MPC_AUTODIFF_H

#include "ir.h"
#include "map.h"

/* A differentiated function.  `fwd` is the function itself, with residuals; its last `saves` results are these.
 * The parameters of `bwd` are, in order: the gradients of the active results; one accumulator for each gradient of
 * `shared`; the residuals; the parameters of fwd that it reads.  Its results: the gradients of the active
 * carried parameters, the accumulators, the gradients of the other active parameters. */
typedef struct {
    Func *fwd, *bwd;
    int carried;  /* of a loop's body: so many parameters are carried; 0 for a called function */
    bool *active; /* of each parameter of fwd: does it have a gradient? */
    bool *shared; /* of each: the same for all iterations of the loop, so that its gradients add up */
    bool *given;  /* of each result of fwd: does bwd take its gradient? */
    bool *unread; /* of each parameter of fwd: nothing has used it, and its gradient is zero, whatever it is */
    Values read;  /* parameters of fwd that bwd reads */
} Derivative;

/* The floating-point values of the model, and of the functions that it calls, on whose gradients the loss depends. */
void find_useful(const Module *m, const Func *model, Map *useful);

/* Makes a gradient's type that of what it is the gradient of: sums the dims it has too many, spreads it
 * over those it lacks, in the same memory order.  `dtype`: of the result. */
Value *finish_gradient(Builder *b, Value *gradient, const Type *type, DType dtype);

Value *build_zeros(Builder *b, const Type *type);

/* Writes STEP around the differentiated model. */
void write_step(Module *m, const Derivative *model);

#endif
