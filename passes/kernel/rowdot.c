/* rowdot.c -- a dot of two tensors that have all their dims in common is not a product of matrices; nor is one without
 * a sum, or one of rows of two tensors, one of which has no other dims, as in a convolution of each channel by itself:
 *
 *   %3 = dot %1, %2 {over=embed}     =>     %4 = mul %1, %2
 *                                           %3 = sum %4 {over=embed}
 *
 * In this form it is a loop over rows that fuses with its neighbours; for a library it would be a product of one row
 * and one column for each row.  Dims with one element per rank are ignored.
 */
#include "fuse.h"

static bool has_one(const Module *m, const Dim *dim)
{
    return dim->size == 1 || (dim->split.count && local_size(m, dim) == 1);
}

static bool has_own_dim(const Module *m, const Type *type, const Type *other)
{
    for (int i = 0; i < type->rank; i++)
        if (find_dim(other, type->dim[i].name) < 0 && !has_one(m, &type->dim[i]))
            return true;
    return false;
}

/* Is the innermost dim, along which neighbours lie, kept and common to both? */
static bool has_common_rows(const Module *m, const Op *dot)
{
    const Type *a = &arg(dot, 0)->type, *b = &arg(dot, 1)->type;
    const Dim *inner = a->rank && b->rank ? &a->dim[a->rank - 1] : NULL;
    return inner && inner->name == b->dim[b->rank - 1].name && !has_name(&dot->attrs.over, inner->name) &&
           !has_one(m, inner);
}

static bool is_row_dot(const Module *m, const Op *op)
{
    if (info(op)->family != PRODUCT)
        return false;
    const Type *a = &arg(op, 0)->type, *b = &arg(op, 1)->type;
    const int matrices = has_own_dim(m, a, b) + has_own_dim(m, b, a);
    return is_float(a->dtype) && is_float(b->dtype) &&
           (matrices == 0 || !op->attrs.over.count || (matrices == 1 && has_common_rows(m, op)));
}

/* Computes in f32 and rounds once, as products do. */
static Value *open_dot(Builder *b, const Op *dot)
{
    const Type *type = &result(dot)->type;
    Value *product = BUILD(b, OP_mul, NO_ATTRS, build_cast(b, F32, arg(dot, 0)), build_cast(b, F32, arg(dot, 1)));
    Value *sum = dot->attrs.over.count ? BUILD(b, OP_sum, (Attrs){ .over = dot->attrs.over }, product) : product;
    return build_like(b, build_cast(b, type->dtype, sum), type);
}

void open_row_dots(Module *m, Func *f)
{
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        if (!is_row_dot(m, op))
            continue;
        Builder b = builder_at(m, f, op);
        Value *sum = open_dot(&b, op);
        sum->name = result(op)->name;
        replace_uses(f, result(op), sum);
        remove_op(f, op);
    }
}
