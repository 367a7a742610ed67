/* observables.h -- the observables of a program, as named tensors: what --verify-passes compares.
 *
 * The programs of a module run through the reference interpreter on weights, tokens and scalars that depend only on
 * names, so that two forms of one program get the same ones.
 */
#ifndef MPC_OBSERVABLES_H
#define MPC_OBSERVABLES_H

#include "interp/interp.h"

/* Before there is a step: the loss of the whole batch, for the tokens of two steps.  From then on, for each of two
 * consecutive steps: the loss, the norm of the gradient, the new state, the change of each weight.  In fp16, also the
 * new state of a step whose gradients overflow.  And the loss of evaluation, the logits of prediction. */
typedef struct {
    int count, room;
    struct Observable *at;
    Name outside; /* the dim that an index is outside of in a program that cannot be run; NULL: that is not why */
} Observables;

typedef struct Observable {
    Name name;
    PortKind kind; /* of state; PORT_NONE: another result */
    Tensor tensor;
    double noise; /* elements much smaller than this are rounding errors */
} Observable;

/* False, after reporting to m->diags, if a program cannot be run.  `exact`: in residues modulo a prime. */
bool find_observables(Module *m, bool exact, Observables *observables);
void forget_observables(Observables *observables);

/* How rounding errors are measured that cancelling terms leave, or that the program magnifies, since a result does not
 * show their size: intermediate numbers get random relative errors of 1e-9, SHAKINGS times, and the effect is scaled to
 * 1e-16.  Ten thousand times that is allowed, since what cancels inside of an op, as in the derivative of attention,
 * gets none. */
enum { SHAKINGS = 2 };
#define SHAKEN_BY 1e-9
static inline double rounding_after(double effect) { return effect / SHAKEN_BY * 1e-12; }

/* Do the tensors in both agree, to 1e-9 relative to their size, or exactly?  If not, sets *at and *difference for the
 * first tensor of `after` that differs.  `m` is the program of `after`.  If it magnifies rounding errors (a chain of
 * norms of nearly equal numbers does, by 1 / sqrt(eps) each), greater differences agree, below 1e-6. */
bool same_observables(Module *m, const Observables *before, const Observables *after, bool exact, int *at,
                      Difference *difference);

/* --- For slopes.c ------------------------------------------------------------------------------ */

/* The derivative of the loss of the whole batch along the parameter's direction, in forward mode. */
bool find_slope(Module *m, const char *param, const Shaking *shaking, double *slope);
Tensor direction_of(Module *m, const char *param, const Type *type); /* random */

/* Runs the first step again with an observer. */
bool watch_step(Module *m, const Observer *observer);
double loss_scale_of(const Module *m); /* that multiplies gradients in the step */

#endif
