/* derive.h -- a layout for a model without one. */
#ifndef MPC_PLANNER_DERIVE_H
#define MPC_PLANNER_DERIVE_H

#include "ir.h"
#include "syntax/ast.h"

/* The text of a `parallel { }` block in which all axes have one rank: what can be split, by the ops of the model `m`,
 * as it was lowered from `file` on one rank.  may_share: also repeats, into the stages of a pipeline.  NULL: nothing
 * can. */
const char *derive_layout(Arena *arena, const Ast *file, const Module *m, bool may_share);

#endif
