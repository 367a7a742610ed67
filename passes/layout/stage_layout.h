/* stage_layout.h -- the stages of a pipeline on which ops run and parameters are. */
#ifndef MPC_STAGE_LAYOUT_H
#define MPC_STAGE_LAYOUT_H

#include "tensor_layout.h"

/* The stages on which an op of f has to have all its operands, if it cannot run on those that hold them: all stages, if
 * these split its space, or if it adds numbers of the step; else those of the largest operand, if no stage holds all.
 */
bool moves_operands(const Func *f, const Op *op, const Type *space, Stages *to);

Name looped_dim(const Op *op); /* NULL: no loop */

/* The rules may split the dim of a loop: its slices are then on the stages of a pipeline. */
void split_loop(const LayoutRules *rules, Op *op);

/* Is a pipeline in this function?  All else runs as one op does: where its operands are. */
bool has_pipeline(const LayoutRules *rules, const Func *f);

/* Puts parameters on the stages that read them.  Forgets the layout of all else. */
void place_params(const LayoutRules *rules);

int64_t bytes_of(const Type *type); /* of the whole tensor */

#endif
