/* infer.h -- shared by the type inference files: infer.c (the common rule), space.c, roles.c, infer_views.c,
 * infer_collectives.c. */
#ifndef MPC_INFER_H
#define MPC_INFER_H

#include "ir.h"

#define INFER(name) bool infer_##name(Module *m, const Op *op, Type results[])

/* Reports why the op is invalid and a remedy; false, for the caller to return. */
#define REFUSE(remedy, ...)                                                                                            \
    (error_at(m->diags, (Where){ .at = op->loc, .label = origin_text(m, op), .help = (remedy) }, __VA_ARGS__), false)

/* "h.attn.q, gpt2.mdl:24:9": the path and model line of an op that was read from IR text; NULL if the text is the model
 * itself. */
const char *origin_text(Module *m, const Op *op);

/* Which sums are pending in the result?  An op accepts partial operands only as its linearity permits. */
bool infer_partial(Module *m, const Op *op, Type *result);

/* Is the operand the number 0, as the alternative to a pending sum?  Its terms are 0 too, over any axes. */
bool chooses_zeros(const Op *op, int at);

/* Is each axis used at most once, to split one dim or for a pending sum? */
bool each_axis_once(const Type *space, Axes pending);

/* Is no dim split that the op needs whole? */
bool has_whole_dims(Module *m, const Op *op);

Axes split_axes(Split split);
bool same_split(const Dim *a, const Dim *b); /* the same axes in the same order, and the same blocks */

#define OP(name, args, res, family, over, roles, linear, traits, flops, infer, vjp)                                    \
    INFER(infer);                                                                                                      \
    Role role_##roles(const Op *op, Name dim);
#include "ops.def"

/* Appends a dim to the type of a result; an error if it is there, or there are too many. */
bool append_dim(Module *m, const Op *op, Type *y, const Dim *dim);

#endif
