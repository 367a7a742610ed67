/* blocks.c -- see blocks.h. */
#include "blocks.h"

bool has_e4m3_blocks(const Module *m, const Type *type, Name name)
{
    const int at = name ? find_dim(type, name) : -1;
    if (at < 0)
        return false;
    const Dim *dim = &type->dim[at];
    const bool is_dealt = dim->split.count && (dim->zigzag || dim->split.dealt);
    const int64_t together = is_dealt ? dim->size / dealt_blocks(m, dim) : local_size(m, dim);
    return dim->padded == dim->size && !dim->split.parts && together % E4M3_BLOCK == 0;
}

static bool is_read_at(const Op *op, const Value *value, int first, int end)
{
    for (int i = first; i < end && i < op->args.count; i++)
        if (arg(op, i) == value)
            return true;
    return false;
}

const Func *kernel_rounding(const Module *m, const Op *op)
{
    const Func *kernel = kernel_called_by(m, op);
    for (const Op *inner = kernel ? kernel->first : NULL; inner; inner = inner->next)
        if (info(inner)->family == PRODUCT && rounded_from(inner, 0))
            return kernel;
    return NULL;
}

bool is_read_instead(const Func *kernel, int operand)
{
    bool is_instead = false;
    for (const Op *op = kernel ? kernel->first : NULL; op; op = op->next) {
        const Value *param = kernel->params.at[operand];
        const int own = info(op)->family == PRODUCT && rounded_from(op, 0) ? 2 : op->args.count;
        if (is_read_at(op, param, 0, own))
            return false;
        is_instead |= is_read_at(op, param, own, op->args.count);
    }
    return is_instead;
}
