/* operand_layout.h -- the layout that an op needs of its operands, and the pending sums that it may leave pending. */
#ifndef MPC_OPERAND_LAYOUT_H
#define MPC_OPERAND_LAYOUT_H

#include "map.h"
#include "tensor_layout.h"

/* In how many places a value is read, of a map from values to these numbers, stored as pointers. */
int uses_of(const Map *uses, const Value *value);

/* Which pending sums of its operands may stay pending in the result?  Those shared by all operands in which the op is
 * linear, unless that makes the reduced tensor larger; over stages, always: a message between them is worse.  first,
 * last: these operands. */
Axes pending_sums(const LayoutRules *rules, const Map *uses, const Op *op, int *first, int *last);

/* The union of the operands' dims, and those that {dims} gives the result; sizes only.  If they are more than a tensor
 * may have, those that the op needs whole are not there. */
Type whole_space(const Op *op);

/* Keeps splits of an operand over axes that the rules do not use: state under zero stays split. */
void adopt_splits(const LayoutRules *rules, const Op *op, Type *space, Axes pending);

/* The required type of an operand: split like the space, with these sums pending. */
Type wanted_type(const Type *given, const Type *space, Axes pending);

#endif
