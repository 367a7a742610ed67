/* step.h -- declarations shared by the parts of writing the step: step.c computes the gradients, step_update.c changes
 * the weights with them. */
#ifndef MPC_PASS_STEP_H
#define MPC_PASS_STEP_H

#include "autodiff.h"

typedef struct {
    Module *m;
    const Derivative *model;
    Func *f;
    Builder b;
    int64_t micros; /* micro-batches a step */
    Dim micro;
    Value *step, *lr, *key;                         /* scalars that the trainer sets */
    Value *loss_scale, *good_steps;                 /* fp16: state */
    Value *skipped_steps, *usual_norm, *norm_steps; /* skip_spikes: state */
    Value *applied_steps;                           /* where a step may be skipped, and an optimizer reads `step` */
    Values weights;                                 /* f32 state, one per parameter of the model */
    Values *state;                                  /* of the optimizer, for each weight */
    Values operands;     /* of the model, in the order of its parameters; without micro dim for a single micro-batch */
    Values gradients;    /* for each weight; NULL: it is frozen */
    Value *factor;       /* of gradients, which clips them; NULL: none */
    Value *applied;      /* is the step applied?  NULL: always */
    Value *applied_step; /* its number among these, from 1 */
    Values *updated;     /* of each weight, once it is computed: it after the step, then its new state */
    const Func *gradient_func; /* of a micro-batch, */
    const Op *sums;            /* and its results, over the batch */
    Value *loss, *norm;
    const Func *totals; /* the function TOTALS; NULL: none */
    const Op *counts;   /* what it gives, over the whole batch */
} Step;

/* Builds algebra in the syntax of the gradients in ops.def; the letters from 'a' are values[0], values[1], ... */
Value *compute_term(Step *s, const char *text, int n, Value *const values[]);
#define COMPUTE(s, text, ...)                                                                                          \
    compute_term((s), (text), (int)(sizeof((Value *[]){ __VA_ARGS__ }) / sizeof(Value *)), (Value *[]){ __VA_ARGS__ })

Value *number(Step *s, double value); /* f32 */
Value *whole(Step *s, double value);  /* i32 */
Value *cast_to(Step *s, Value *x, const char *dtype);

/* A name for a parameter of the step, different from all parameters and inputs of the model. */
Name own_name(Module *m, Name name);

/* Is it changed by the optimizer?  A state has an update of its own. */
bool is_optimized(const Step *s, const Value *weight);

/* The function that updates a weight; NULL: plain descent, or none. */
const Func *update_of(const Step *s, const Value *weight);

/* step_update.c: the norm of the gradients; new weights and state, as results of the step. */
void find_norm(Step *s);
void update_state(Step *s);

#endif
