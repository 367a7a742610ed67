/* rewrite.h -- a model's file with another layout. */
#ifndef MPC_PLANNER_REWRITE_H
#define MPC_PLANNER_REWRITE_H

#include "syntax/ast.h"

#include <stdint.h>

/* The text of `source`, parsed as `file`, with `block` in place of its `parallel { }`, or at its end; above it
 * `comment`, whose lines are without "#".  Comments of the old block are kept above that; one that begins with the same
 * two words as `comment`, of an earlier call, is not.  Sets `train.microbatch` if microbatch > 0, and `train.abreast`
 * if abreast > 0; a file without `train.abreast` gets none if abreast is 1, the default.  All other bytes stay. */
const char *with_layout(Arena *arena, const Source *source, const Ast *file, const char *block, const char *comment,
                        int64_t microbatch, int64_t abreast);

#endif
