/* operands.c -- see operands.h. */
#include "operands.h"

const char *const operand_text[] = {
    "",
#define NAME(name) #name,
#define OPERAND(op, name)
#define OPTIONAL(op, name, is)
#define RESULT(op, name)
#include "operands.def"
};

static bool is_any(const Op *op, int at) { return true; }
static bool is_a_float(const Op *op, int at) { return is_float(arg(op, at)->type.dtype); }
static bool is_float_by_key(const Op *op, int at)
{
    return is_a_float(op, at) && find_dim(&arg(op, at)->type, op->attrs.key) >= 0;
}

static const struct {
    OpKind op;
    OperandName name;
    bool (*is)(const Op *, int at); /* NULL: a result */
} rows[] = {
#define NAME(name)
#define OPERAND(op, name) { OP_##op, OPERAND_##name, is_any },
#define OPTIONAL(op, name, is) { OP_##op, OPERAND_##name, is },
#define RESULT(op, name) { OP_##op, OPERAND_##name, NULL },
#include "operands.def"
};

OperandName operand_name(const Op *op, int at)
{
    int next = 0, next_result = op->args.count;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].op != op->kind || (rows[i].is && (next == op->args.count || !rows[i].is(op, next))))
            continue;
        if ((rows[i].is ? next++ : next_result++) == at)
            return rows[i].name;
    }
    return NO_OPERAND;
}

int operand_at(const Op *op, OperandName name)
{
    for (int i = 0; i < op->args.count + op->results.count; i++)
        if (operand_name(op, i) == name)
            return i;
    return -1;
}

bool is_logit(const Op *op, int operand)
{
    const OperandName name = operand_name(op, operand);
    return name == OPERAND_bias || name == OPERAND_sinks;
}
