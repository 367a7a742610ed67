/* plant_kernel.c -- faults in kernels: other dims, other reductions, other operands. */
#include "plant.h"

static bool in_kernel(Module *m, Func *f, Op *op) { return f->role == KERNEL; }

static bool reduces(Module *m, Func *f, Op *op)
{
    return f->role == KERNEL && info(op)->family == REDUCTION && op->args.count == 1;
}

/* Over more than one element on each rank, so that the reductions differ. */
static bool reduces_many(Module *m, Func *f, Op *op)
{
    int64_t elements = 1;
    for (int i = 0; reduces(m, f, op) && i < op->attrs.over.count; i++)
        elements *= arg(op, 0)->type.dim[find_dim(&arg(op, 0)->type, op->attrs.over.name[i])].size;
    return elements > 1;
}

static bool calls_kernel(Module *m, Func *f, Op *op)
{
    const Func *callee = op->kind == OP_call ? find_func(m, op->attrs.callee) : NULL;
    return callee && callee->role == KERNEL;
}

/* The only reader of a parameter; NULL if there are several. */
static const Op *only_reader(const Func *f, const Value *param)
{
    const Op *found = NULL;
    for (const Op *op = f->first; op; op = op->next)
        if (index_of(&op->args, param) >= 0 && found)
            return NULL;
        else if (index_of(&op->args, param) >= 0)
            found = op;
    return found;
}

/* Operands that are not only used in a commutative sum or product. */
static bool hands_over_in_order(Module *m, Func *f, Op *op)
{
    const Func *kernel = calls_kernel(m, f, op) ? find_func(m, op->attrs.callee) : NULL;
    for (int i = 0; kernel && i < op->args.count; i++)
        for (int j = 0; j < i; j++) {
            const Op *reader = only_reader(kernel, kernel->params.at[i]);
            bool meet = reader && reader == only_reader(kernel, kernel->params.at[j]);
            if (meet && info(reader)->traits & COMMUTES)
                return false;
        }
    return kernel;
}

static bool reads_in_order(Module *m, Func *f, Op *op)
{
    return f->role == KERNEL && op->args.count > 1 && !(info(op)->traits & COMMUTES);
}

/* Reduces over a dim that it keeps; its type is unchanged. */
static bool reduce_another(Module *m, Func *f, Op *op)
{
    const Type *y = &result(op)->type;
    if (!y->rank)
        return false;
    op->attrs.over.name[0] = y->dim[0].name;
    return true;
}

static bool take_largest(Module *m, Func *f, Op *op)
{
    op->kind = op->kind == OP_max ? OP_sum : OP_max;
    return true;
}

/* Exchanges two results of one type. */
static bool exchange_results(Module *m, Func *f, Op *op)
{
    const Func *kernel = find_func(m, op->attrs.callee);
    for (int i = 0; i < op->results.count; i++)
        for (int j = 0; j < i; j++)
            if (type_equal(&op->results.at[i]->type, &op->results.at[j]->type)) {
                Value *moved = kernel->results.at[i];
                kernel->results.at[i] = kernel->results.at[j];
                kernel->results.at[j] = moved;
                return true;
            }
    return false;
}

static const Plant plants[] = {
    { 'n', "a kernel does not reduce", reduces, leave_out },
    { 'n', "a kernel reduces another dim", reduces, reduce_another },
    { 'n', "a kernel reduces in another way", reduces_many, take_largest },
    { 'n', "a kernel reads another value", in_kernel, read_another },
    { 'n', "a kernel takes operands the wrong way round", reads_in_order, exchange_operands },
    { 'n', "a call hands operands over the wrong way round", hands_over_in_order, exchange_operands },
    { 'n', "a kernel hands results over the wrong way round", calls_kernel, exchange_results },
};
const PlantList plants_of_kernels = { sizeof plants / sizeof *plants, plants };
