/* epilogue.c -- see epilogue.h. */
#include "epilogue.h"

const Op *op_before(const Epilogue *epilogue, const Op *op)
{
    return arg(op, 0) == epilogue->added ? arg(op, 1)->def : arg(op, 0)->def;
}

bool find_epilogue(const Value *result, Epilogue *epilogue)
{
    const Op *op = result->def;
    if (op && op->kind == OP_cast)
        return find_epilogue(arg(op, 0), epilogue);
    for (int i = 0; op && op->kind == OP_add && i < 2; i++)
        if (!arg(op, i)->def && find_epilogue(arg(op, 1 - i), epilogue) && !epilogue->added) {
            epilogue->added = arg(op, i);
            return type_equal(&epilogue->added->type, &result->type) && same_dims(&arg(op, 1 - i)->type, &result->type);
        }
    *epilogue = (Epilogue){ .dot = op };
    return op && info(op)->family == PRODUCT;
}
