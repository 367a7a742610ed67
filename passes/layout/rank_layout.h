/* rank_layout.h -- the ranks on which ops run and parameters are, where some have other parts of the model. */
#ifndef MPC_RANK_LAYOUT_H
#define MPC_RANK_LAYOUT_H

#include "tensor_layout.h"

/* The ranks on which an op of f has to have all its operands, if it cannot run on those that hold them: all ranks, if
 * these split its space, or if it adds numbers of the step; else those of the largest operand, if no rank holds all.
 */
bool moves_operands(const Func *f, const Op *op, const Type *space, RankSet *to);

Name looped_dim(const Op *op); /* NULL: no loop */

/* The rules may split the dim of a loop: its slices are then on the ranks along an axis. */
void split_loop(const LayoutRules *rules, Op *op);

/* Do they split a loop of this function, or of one that it calls?  All else runs as one op does: where its operands
 * are. */
bool splits_any_loop(const LayoutRules *rules, const Func *f);

/* Puts parameters on the ranks that read them.  Forgets the layout of all else. */
void place_params(const LayoutRules *rules);

int64_t bytes_of(const Type *type); /* of the whole tensor */

#endif
