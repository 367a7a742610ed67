/* product_join.c -- joins products of one kernel to a single product where their operands and results are adjacent in
 * memory.
 *
 *   [C | F] = A [B | E]         more columns: q, k, v of one x
 *   [C / F] = [A / D] B         more rows
 *   C = [A | D] [B / E]         a longer sum: C = A B + D E, as the gradient of that x
 *   C, F = A B, D E             several matrices at equal distances: the gradients of the weights of q, k, v
 */
#include "product.h"

#include "kinds/kinds.h"

/* --- Two products ----------------------------------------------------------------------------------------- */

/* Distances from the operands and the result of one product to those of another, in elements. */
typedef struct {
    int64_t a, b, c;
} Distances;

static bool find_distance(Module *m, const Op *call, const Value *first, const Value *second, int64_t *elements)
{
    const int64_t bytes = second->storage->at - first->storage->at, one = dtype_bytes(first->type.dtype);
    *elements = bytes / one;
    return bytes % one == 0 && keeps_distance(m, call, first, second);
}

static bool find_distances(Module *m, const Op *call, const Product *p, const Product *q, Distances *d)
{
    return find_distance(m, call, arg(call, p->a), arg(call, q->a), &d->a) &&
           find_distance(m, call, arg(call, p->b), arg(call, q->b), &d->b) &&
           find_distance(m, call, call->results.at[p->c], call->results.at[q->c], &d->c);
}

static bool is_plain(const Product *p) { return !p->naive && !p->nloops && !p->activation && !p->slope; }

/* Have all matrices the types and strides of the other product's? */
static bool lie_alike(const RtProductShape *s, const RtProductShape *t)
{
    return s->a.type == t->a.type && s->a.row == t->a.row && s->a.column == t->a.column && s->b.type == t->b.type &&
           s->b.row == t->b.row && s->b.column == t->b.column && s->c.type == t->c.type && s->c.row == t->c.row &&
           s->c.column == t->c.column;
}

static bool same_batch(const RtProductShape *s, const RtProductShape *t)
{
    return s->batch == t->batch && s->a.batch == t->a.batch && s->b.batch == t->b.batch && s->c.batch == t->c.batch;
}

/* Have both no bias, or contiguous biases? */
static bool biases_meet(Module *m, const Op *call, const Product *p, const Product *q)
{
    int64_t distance;
    if (p->bias < 0 || q->bias < 0)
        return p->bias == q->bias;
    return find_distance(m, call, arg(call, p->bias), arg(call, q->bias), &distance) && distance == p->shape.n;
}

/* Can `count` matrices at this distance be described by strides that nest, as oneDNN wants them: one behind another, or
 * side by side in the longer stride of the first? */
static bool strides_nest(int64_t distance, int64_t count, int64_t rows, int64_t row, int64_t columns, int64_t column)
{
    const int64_t along_rows = rows > 1 ? row : 0, along_columns = columns > 1 ? column : 0;
    const bool by_rows = along_rows >= along_columns; /* rows are further apart */
    const int64_t longer = by_rows ? along_rows : along_columns, far = longer * (by_rows ? rows : columns),
                  near = by_rows ? along_columns * columns : along_rows * rows;
    return distance == 0 || distance >= far || (distance >= near && count * distance <= longer);
}

/* Computes `p` also the matrices of `q`, behind those that it computes already? */
static bool join_matrices(RtProductShape *s, const RtProductShape *t, const Distances *d)
{
    const bool is_first = s->batch == 1;
    const int64_t count = s->batch + 1;
    const bool good =
        t->batch == 1 && s->m == t->m && s->n == t->n && s->k == t->k && d->a >= 0 && d->b >= 0 && d->c > 0 &&
        !s->has_bias && !t->has_bias && !s->counted && !s->block &&
        strides_nest(d->a / s->batch, count, s->m, s->a.row, s->k, s->a.column) &&
        strides_nest(d->b / s->batch, count, s->k, s->b.row, s->n, s->b.column) &&
        strides_nest(d->c / s->batch, count, s->m, s->c.row, s->n, s->c.column) &&
        (is_first || (d->a == s->batch * s->a.batch && d->b == s->batch * s->b.batch && d->c == s->batch * s->c.batch));
    if (!good)
        return false;
    if (is_first)
        s->a.batch = d->a, s->b.batch = d->b, s->c.batch = d->c;
    s->batch++;
    return true;
}

/* Do operands before rounding lie as the rounded ones do, if either product has any? */
static bool origins_meet(Module *m, const Op *call, const Product *p, const Product *q, const Distances *d)
{
    const int64_t expected[] = { d->a, d->b };
    int64_t distance;
    for (int i = 0; i < 2; i++)
        if (p->from[i] < 0 || q->from[i] < 0
                ? p->from[i] != q->from[i]
                : !find_distance(m, call, arg(call, p->from[i]), arg(call, q->from[i]), &distance) ||
                      distance != expected[i])
            return false;
    return true;
}

/* Makes `p` compute what `q` computes, if that follows in memory. */
static bool join(Module *m, const Op *call, Product *p, const Product *q)
{
    RtProductShape *s = &p->shape;
    const RtProductShape *t = &q->shape;
    const bool is_sum = p->c == q->c;
    Distances d;
    if (!is_plain(p) || !is_plain(q) || !lie_alike(s, t) || s->block != t->block || s->squares != t->squares ||
        s->counted != t->counted || s->accumulate != t->accumulate || (!is_sum && (p->copied >= 0 || q->copied >= 0)) ||
        !find_distances(m, call, p, q, &d) || !origins_meet(m, call, p, q, &d))
        return false;
    const bool same_m = s->m == t->m, same_n = s->n == t->n, same_k = s->k == t->k, whole = same_batch(s, t);
    if (is_sum) {
        if (!whole || !same_m || !same_n || d.a != s->k * s->a.column || d.b != s->k * s->b.row ||
            s->counted == RT_COUNTED_K)
            return false;
        s->k += t->k;
        p->terms += q->terms;
        return true;
    }
    if (p->terms > 1 || q->terms > 1)
        return false;
    if (whole && same_m && same_k && d.a == 0 && d.b == s->n * s->b.column && d.c == s->n * s->c.column &&
        s->counted != RT_COUNTED_N && biases_meet(m, call, p, q)) {
        s->n += t->n;
        return true;
    }
    if (whole && same_n && same_k && d.b == 0 && d.a == s->m * s->a.row && d.c == s->m * s->c.row &&
        s->counted != RT_COUNTED_M && p->bias == q->bias) {
        s->m += t->m;
        return true;
    }
    return join_matrices(s, t, &d);
}

/* --- All ----------------------------------------------------------------------------------------------------- */

/* Joins two of them, of which either may be first in memory. */
static bool join_any(Module *m, const Op *call, Product *products, int *count)
{
    for (int i = 0; i < *count; i++)
        for (int j = 0; j < *count; j++)
            if (i != j && join(m, call, &products[i], &products[j])) {
                for (int k = j; k + 1 < *count; k++)
                    products[k] = products[k + 1];
                (*count)--;
                return true;
            }
    return false;
}

/* Of several products that are added up in one result, all but the first add to what is there. */
static void add_to_first(Product *products, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (products[j].c == products[i].c) {
                products[i].shape.accumulate = true;
                products[i].copied = -1;
            }
}

int plan_products(Module *m, const Func *kernel, const Op *call, Product **products)
{
    int count = plan_each_product(m, kernel, call, products);
    while (join_any(m, call, *products, &count)) {
    }
    add_to_first(*products, count);
    return count;
}
