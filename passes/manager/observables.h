/* observables.h -- the observables of a program, as named tensors: what --verify-passes compares.
 *
 * The programs of a module run through the reference interpreter on weights, tokens and scalars that depend on
 * names alone, so that two forms of one program get the same ones.
 */
#ifndef MPC_OBSERVABLES_H
#define MPC_OBSERVABLES_H

#include "interp/interp.h"

/* Before there is a step: the loss of the whole batch, for the tokens of two steps.  From then on, for each of two
 * steps, one after the other: the loss, the norm of the gradient, all state that the step leaves behind, what it adds
 * to each weight.  In fp16, what a step leaves behind whose gradients overflow.  And the loss of evaluation, the logits
 * of prediction. */
typedef struct {
    int count, room;
    struct Named *at;
} Observables;

typedef struct Named {
    Name name;
    PortKind kind; /* of state; PORT_NONE: a result that stands alone */
    Tensor tensor;
    double noise; /* where elements are much smaller than this, they are rounding */
} Named;

/* False, after reporting to m->diags, if a program cannot be run.  `exact`: in residues modulo a prime. */
bool find_observables(Module *m, bool exact, Observables *observables);
void forget_observables(Observables *observables);
const Tensor *find_tensor(const Observables *observables, const char *name); /* or NULL */

/* What both sides name has to agree, to 1e-9 of its usual size, or exactly: false, and in *at and *difference the
 * first tensor of `after` that does not. */
bool same_observables(const Observables *before, const Observables *after, bool exact, int *at, Difference *difference);

/* --- For slopes.c ------------------------------------------------------------------------------ */

/* See Tangents in interp.h. */
typedef struct {
    double by;
    uint64_t seed;
} Shaking;

/* By how much the loss of the whole batch changes where the parameter moves along its direction, in forward mode. */
bool find_slope(Module *m, const char *param, const Shaking *shaking, double *slope);
Tensor direction_of(Module *m, const char *param, const Type *type); /* random */

/* Runs the first step once more, for whom it concerns. */
bool watch_step(Module *m, const Observer *observer);
double loss_scale_of(const Module *m); /* that gradients come with there */

#endif
