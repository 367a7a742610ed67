/* rewrite.h -- a model's file with another layout. */
#ifndef MPC_PLANNER_REWRITE_H
#define MPC_PLANNER_REWRITE_H

#include "syntax/ast.h"

#include <stdint.h>

/* The text of `source`, parsed as `file`, with `block` in place of its `parallel { }`, or at its end; above it
 * `comment`, whose lines are without "#".  Comments of the old block are kept above that; one that begins with the same
 * two words as `comment`, of an earlier call, is not.  microbatch > 0: and with that `train.microbatch`; abreast > 0:
 * with that `train.abreast`, of which 1 is not written anew.  All other bytes stay. */
const char *with_layout(Arena *arena, const Source *source, const Ast *file, const char *block, const char *comment,
                        int64_t microbatch, int64_t abreast);

#endif
