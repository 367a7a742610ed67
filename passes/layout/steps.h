/* steps.h -- the collectives that lead from one type to another, one by one. */
#ifndef MPC_PASSES_STEPS_H
#define MPC_PASSES_STEPS_H

#include "ir.h"

typedef struct {
    OpKind kind;
    Attrs attrs;
} Collective;

/* The first step from the type `now` to `to`; false: they are the same.  Steps that make the tensor smaller come before
 * those that make it larger.  One message splits a dim over several axes, or gathers it from them, if they are in the
 * order of the mesh: two would send the same bytes, one after the other. */
bool next_step(const Module *m, const Type *now, const Type *to, Collective *step);

#endif
