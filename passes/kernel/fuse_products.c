/* fuse_products.c -- ops that are computed with a product, and products that are one kernel.
 *
 * A product is a group of its own, or with its running sum (C += A B), with its bias and activation (C = f(A B + b)),
 * with its bias and a residual (C = A B + b + x), with the slope of an activation (C = A B * f'(x)), with others that
 * it is added to (C = A B + D E, as the gradient of what several products read), or with others that read one of its
 * operands: of the same left operand with weights (q, k, v), or sums over the rows of the same right operand (the
 * gradients of these weights).
 */
#include "fuse.h"

#include "epilogue.h"

/* Two products of one left operand with weights: memory.c can interleave these, and the results, in memory. */
static bool share_left(const Op *a, const Op *b)
{
    return arg(a, 0) == arg(b, 0) && !arg(a, 1)->def && !arg(b, 1)->def && arg(a, 1) != arg(b, 1);
}

static bool sums_rows(const Op *dot, int operand)
{
    const Type *type = &arg(dot, operand)->type;
    return type->rank && has_name(&dot->attrs.over, type->dim[0].name);
}

/* Two sums over the rows of one right operand, with left operands alike, as the gradients of the weights that a product
 * of several has: memory.c can place these, and the results, at equal distances, except in a pipeline. */
static bool share_right(const Op *a, const Op *b)
{
    return arg(a, 1) == arg(b, 1) && arg(a, 0) != arg(b, 0) && type_equal(&arg(a, 0)->type, &arg(b, 0)->type) &&
           sums_rows(a, 0) && sums_rows(a, 1);
}

bool products_fit(const Fusion *p, const FusionGroup *a, const FusionGroup *b)
{
    const Op *first = p->ops[a->index], *second = p->ops[b->index];
    return a->product && b->product && info(first)->family == PRODUCT && info(second)->family == PRODUCT &&
           a->adds == b->adds && a->adds < 2 &&
           ((!a->adds && share_left(first, second)) || (!p->has_kinds && share_right(first, second))) &&
           attrs_equal(&first->attrs, &second->attrs);
}

/* --- Epilogues ------------------------------------------------------------------------------ */

static int count_readers(const Fusion *p, const Value *value)
{
    const Numbers *readers = map_get(&p->readers, value);
    return (readers ? readers->count : 0) + (map_get(&p->returned, value) != NULL);
}

/* Are the values between the products and `op`, which adds them up, read only by the next op, and in the same ranks?
 */
static bool is_chain(const Fusion *p, const Op *op, const Value *added)
{
    for (int i = 0; info(op)->family != PRODUCT && i < op->args.count; i++) {
        const Op *before = arg(op, i)->def;
        if (arg(op, i) != added && (count_readers(p, arg(op, i)) != 1 || !is_chain(p, before, added) ||
                                    group_of(p, before)->ranks != group_of(p, op)->ranks))
            return false;
    }
    return true;
}

/* Does the function return it, or the sum that scatter.c adds to it in place? */
static bool is_left(const Fusion *p, const Value *sum)
{
    const Numbers *readers = map_get(&p->readers, sum);
    const Op *next = readers && readers->count == 1 ? p->ops[readers->at[0]] : NULL;
    return map_get(&p->returned, sum) || (next && sum_before(next) == sum && is_left(p, result(next)));
}

/* A sum that only this op reads, or the addition whose result it casts, and whose new value the function returns:
 * memory.c can update it in place. */
static bool is_running_sum(const Fusion *p, const Value *sum, const Op *op)
{
    const Numbers *readers = map_get(&p->readers, sum);
    const Op *add = info(op)->traits & CASTS ? arg(op, 0)->def : op;
    return readers->count == 1 && p->ops[readers->at[0]] == add && !map_get(&p->returned, sum) &&
           is_left(p, result(op));
}

static bool merge_after(Fusion *p, const Op *before, const Op *op)
{
    FusionGroup *product = group_of(p, before), *own = group_of(p, op), as = joined(product, own);
    as.product = true;
    if (product->ranks != own->ranks || has_way_around(p, product, own))
        return false;
    merge(p, product, own, as);
    return true;
}

/* Adds to the group what multiplies the product by a slope.  No path leads around: the slope's only reader is the
 * product's. */
static void take_slope(Fusion *p, const Op *dot, const Tail *tail)
{
    const uint64_t ranks = group_of(p, dot)->ranks;
    if (group_of(p, tail->slope)->ranks == ranks && group_of(p, tail->multiplied)->ranks == ranks &&
        merge_after(p, dot, tail->slope))
        merge_after(p, dot, tail->multiplied);
}

/* Adds bias and activation, or bias and residual, to the group: C = activation(A B + bias), C = A B + bias + x. */
void take_tail(Fusion *p, const Uses *uses, int i)
{
    const Op *dot = p->ops[i];
    const bool is_free = info(dot)->family == PRODUCT && !group_of(p, dot)->adds;
    Tail tail = is_free ? find_tail(p->m, p->f, uses, dot) : (Tail){ 0 };
    if (tail.added && !is_worth_adding(p, tail.added, tail.residual))
        tail.sum = tail.added = NULL;
    if (tail.sum && !merge_after(p, dot, tail.sum))
        return;
    if (tail.added && merge_after(p, dot, tail.added))
        group_of(p, dot)->adds = 2;
    if (tail.activation)
        merge_after(p, dot, tail.activation);
    if (tail.slope)
        take_slope(p, dot, &tail);
}

/* Adds to the group of `op` the ops before it, back to the products. */
static bool merge_before(Fusion *p, const Op *op, const Value *added)
{
    for (int i = 0; info(op)->family != PRODUCT && i < op->args.count; i++) {
        const Op *before = arg(op, i)->def;
        if (arg(op, i) != added && ((group_of(p, before) != group_of(p, op) && !merge_after(p, before, op)) ||
                                    !merge_before(p, before, added)))
            return false;
    }
    return true;
}

/* Op i adds a product to a running sum, or several products up: C += A B, or C = A B + D E. */
void take_sum(Fusion *p, int i)
{
    Epilogue term[MAX_TERMS];
    const Op *op = p->ops[i];
    const int count = op->results.count == 1 ? find_terms(result(op), term) : 0;
    const Value *added = count ? term[0].added : NULL;
    if ((count > 1 || (added && !term[0].bias)) && (!added || is_running_sum(p, added, op)) && is_chain(p, op, added) &&
        merge_before(p, op, added))
        group_of(p, op)->adds = count;
}

/* --- Sums beside products ------------------------------------------------------------------------------- */

/* The group of an op that only sums the left operand of this product, over the dims that it sums over; NULL: none. */
static FusionGroup *sum_beside(const Fusion *p, const Op *dot)
{
    const Numbers *readers = map_get(&p->readers, arg(dot, 0));
    for (int i = 0; i < readers->count; i++) {
        const Op *op = p->ops[readers->at[i]];
        FusionGroup *g = group_of(p, op);
        if (g && info(op)->family == REDUCTION && info(op)->over == SUM && sum_over_same_dims(op, dot) &&
            (g->size == 1 || g->beside))
            return g;
    }
    return NULL;
}

/* Of products that are one, these sums are as well, if the library computes both at once. */
void merge_sums(Fusion *p, int i)
{
    const FusionGroup *g = info(p->ops[i])->family == PRODUCT ? final_group(p->group[i]) : NULL;
    FusionGroup *own = g && g->adds < 2 ? sum_beside(p, p->ops[i]) : NULL;
    for (int k = own ? g->index : -1; k >= 0; k = p->sibling[k]) {
        FusionGroup *other = info(p->ops[k])->family == PRODUCT ? sum_beside(p, p->ops[k]) : NULL;
        if (other && other != own && try_merge(p, other, own)) {
            own = group_of(p, p->ops[own->index]);
            own->beside = true;
        }
    }
}
