/* ops.c -- the op table: the facts of ops.def.  What ops compute has tables of its own: result types in infer.c, the
 * effect on dims in roles.c, gradients in vjp.c.
 */
#include "ir.h"

/* clang-format off */
const OpInfo op_table[N_OPS] = {
#define OP(name, args, res, family, over, roles, linear, traits, flops, infer, vjp)                                           \
    [OP_##name] = { #name, args, res, family, over, linear, traits, flops, NULL, NULL, { NULL, NULL, NULL } },
#define MAP(name, args, linear, traits, flops, infer, forward, integers, gradient_a, gradient_b, gradient_c)           \
    [OP_##name] = { #name, args, 1, POINTWISE, KEEP, linear, traits, flops, forward, integers,                         \
                    { gradient_a, gradient_b, gradient_c } },
#include "ops.def"
};
/* clang-format on */
