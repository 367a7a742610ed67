/* blocks.h -- operands of products in 8 bits, which are rounded in blocks: passes/training/quantize.c. */
#ifndef MPC_IR_BLOCKS_H
#define MPC_IR_BLOCKS_H

#include "ir.h"

enum { E4M3_BLOCK = 128 }; /* the neighbours along a dim that share a scale, where so many divide it */

/* Has each rank whole blocks of neighbours along the dim?  False if the type has no such dim. */
bool has_e4m3_blocks(const Module *m, const Type *type, Name name);

/* Of a dot_e4m3: the operand that is `at`, 0 or 1, rounded. */
static inline Value *rounded_from(const Op *dot, int at) { return dot->args.count == 4 ? dot->args.at[at + 2] : NULL; }

/* The kernel that the op calls, if it has such products; NULL: it does not. */
const Func *kernel_rounding(const Module *m, const Op *op);

/* Do its products read this operand only in place of a rounded one?  Then it is read, or that one is.  False of NULL.
 */
bool is_read_instead(const Func *kernel, int operand);

#endif
