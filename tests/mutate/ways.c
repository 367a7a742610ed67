/* ways.c -- selection and changes of ops, shared by the tables of faults. */
#include "plant.h"

#include <float.h>
#include <string.h>

/* A constant that affects results: the lowest number used for padding, for instance, is arbitrary. */
bool is_scale(Module *m, Func *f, Op *op)
{
    double value = op->attrs.value;
    return op->kind == OP_constant && is_float(result(op)->type.dtype) && value != 0 && value != 1 && value > -FLT_MAX;
}

bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

bool adds_terms(const Op *op)
{
    return op->kind == OP_add && is_float(result(op)->type.dtype) && type_equal(&arg(op, 0)->type, &arg(op, 1)->type) &&
           arg(op, 0) != arg(op, 1);
}

/* Replaces the op by its operand, with the type of the result. */
bool leave_out(Module *m, Func *f, Op *op)
{
    op->kind = OP_stop_gradient;
    op->attrs = NO_ATTRS;
    return true;
}

Value *arrived(const Op *op)
{
    Value *y = result(op);
    if (!y->type.in_flight)
        return y;
    for (const Op *wait = op->next; wait; wait = wait->next)
        if (wait->kind == OP_wait && arg(wait, 0) == y)
            return result(wait);
    return NULL;
}

/* The result times `factor`, for its readers. */
bool scale_result(Module *m, Func *f, Op *op, double factor)
{
    Value *y = arrived(op);
    if (!y)
        return false;
    Builder b = builder_at(m, f, y->def->next);
    Value *scaled = BUILD(&b, OP_mul, NO_ATTRS, y, build_number(&b, factor));
    Op *mul = scaled->def;
    replace_uses(f, y, scaled);
    mul->args.at[0] = y;
    return true;
}

bool double_it(Module *m, Func *f, Op *op) { return scale_result(m, f, op, 2); }

bool double_constant(Module *m, Func *f, Op *op)
{
    op->attrs.value *= 2;
    return true;
}

bool other_instance(Module *m, Func *f, Op *op)
{
    op->attrs.instance++;
    return true;
}

bool lose_left(Module *m, Func *f, Op *op)
{
    replace_uses(f, result(op), arg(op, 1));
    return true;
}

bool lose_right(Module *m, Func *f, Op *op)
{
    replace_uses(f, result(op), arg(op, 0));
    return true;
}

/* Resolves views: two names of one memory are equivalent. */
static const Value *origin_of(const Value *value)
{
    while (value->def && (info(value->def)->family == VIEW || value->def->kind == OP_cast))
        value = arg(value->def, 0);
    return value;
}

static bool may_stand_for(const Value *other, const Value *value)
{
    bool is_zero = other->def && other->def->kind == OP_constant;
    return other != value && type_equal(&other->type, &value->type) && origin_of(other) != origin_of(value) && !is_zero;
}

Value *value_like(Func *f, const Op *op, int i)
{
    for (const Op *above = op->prev; above; above = above->prev)
        for (int r = 0; r < above->results.count && !above->attrs.started; r++)
            if (may_stand_for(above->results.at[r], arg(op, i)))
                return above->results.at[r];
    for (int p = 0; p < f->params.count; p++)
        if (may_stand_for(f->params.at[p], arg(op, i)))
            return f->params.at[p];
    return NULL;
}

/* Replaces an operand by another value of its type: the last operand for which there is one. */
bool read_another(Module *m, Func *f, Op *op)
{
    for (int i = op->args.count - 1; i >= 0; i--) {
        Value *other = value_like(f, op, i);
        if (other) {
            op->args.at[i] = other;
            return true;
        }
    }
    return false;
}

/* Exchanges the last two operands of one type. */
bool exchange_operands(Module *m, Func *f, Op *op)
{
    for (int i = op->args.count - 1; i > 0; i--)
        for (int j = i - 1; j >= 0; j--)
            if (arg(op, i) != arg(op, j) && type_equal(&arg(op, i)->type, &arg(op, j)->type)) {
                Value *moved = arg(op, i);
                op->args.at[i] = arg(op, j);
                op->args.at[j] = moved;
                return true;
            }
    return false;
}
