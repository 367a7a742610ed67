/* operands.h -- the operands and results of LIBRARY ops by name: the table is operands.def. */
#ifndef MPC_OPERANDS_H
#define MPC_OPERANDS_H

#include "ir.h"

typedef enum {
    NO_OPERAND,
#define NAME(name) OPERAND_##name,
#define OPERAND(op, name)
#define OPTIONAL(op, name, is)
#define RESULT(op, name)
#include "operands.def"
    N_OPERANDS
} OperandName;

extern const char *const operand_text[N_OPERANDS];

/* The name of operand `at`, or of the result that many behind the operands.  NO_OPERAND: operands.def has no such one
 * for this op. */
OperandName operand_name(const Op *op, int at);

/* The index of the operand of that name, results being behind operands; -1: the op has none. */
int operand_at(const Op *op, OperandName name);

bool is_logit(const Op *op, int operand); /* of attention: a bias or sinks, in f32 for every train.precision */

#endif
