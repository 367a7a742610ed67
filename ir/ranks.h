/* ranks.h -- sets of ranks along one axis of the mesh: those that hold a value, as its type says.
 *
 * A type that names none is of a value on all ranks.  Only the axis along which ranks are of several kinds has such
 * sets: see Module.kind_axis.  Which ranks need a value and run an op follows from them: see needed.h.
 */
#ifndef MPC_RANKS_H
#define MPC_RANKS_H

#include "ir.h"

#define ALL_RANKS (~UINT64_C(0))

bool same_ranks(RankSet a, RankSet b);
bool is_on(RankSet on, int rank); /* does that rank hold the value? */
bool is_on_all(RankSet on, RankSet these);
bool is_one_rank(RankSet on);
RankSet common_ranks(RankSet a, RankSet b);        /* axis -1: there are none */
RankSet unless_all(const Module *m, RankSet on);   /* a type names no ranks if its value is on all */
uint64_t ranks_of_axis(const Module *m, int axis); /* all of an axis, as a set */
int count_kinds(const Module *m);                  /* of ranks, by their number along kind_axis */

bool is_send(const Op *op); /* from some ranks to others */

/* Does the op add terms that are on different ranks?  The sum is then pending over their axis. */
bool adds_ranks(const Op *op);

/* The axes over which a value is a pending sum.  A value of one rank counts as one: that rank has the only term. */
Axes pending_with_ranks(const Type *type);
Axes pending_of(const Op *op, const Type *type); /* of an operand, as the op takes it */

#endif
