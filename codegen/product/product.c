/* product.c -- maps dots to products of matrices: dims become rows, columns, batch, or loops.
 *
 * A dim of a dot is of one of four kinds: m (only in the left operand), n (only in the right), k (both, summed) and
 * batch (both, kept).  Dims of a kind that are contiguous in every operand are merged.  Further dims of m and n become
 * the batch, or a loop around the product.
 */
#include "product.h"

#include "extent.h"
#include "filled.h"
#include "ir/blocks.h"
#include "ir/epilogue.h"
#include "ir/storage.h"

/* A dim, or several that are contiguous; the stride is 0 in an operand that does not have it. */
typedef struct {
    Name name;
    int64_t size, a, b, c, bias;
} Axis;

enum { KIND_M, KIND_N, KIND_K, KIND_BATCH, N_KINDS };

typedef struct {
    int count;
    Axis at[MAX_RANK * 2];
} AxisList;

bool is_product_kernel(const Func *kernel)
{
    for (const Op *op = kernel->first; op; op = op->next)
        if (info(op)->family == PRODUCT)
            return true;
    return false;
}

/* --- One dot ------------------------------------------------------------------------------------------ */

static void add_axis(AxisList *list, Axis axis)
{
    if (axis.size == 1)
        return;
    int at = list->count++;
    for (; at > 0 && list->at[at - 1].c + list->at[at - 1].a < axis.c + axis.a; at--)
        list->at[at] = list->at[at - 1]; /* outermost first */
    list->at[at] = axis;
}

static void merge_axes(AxisList *list)
{
    int count = 0;
    for (int i = 0; i < list->count; i++) {
        Axis *last = count ? &list->at[count - 1] : NULL, *next = &list->at[i];
        if (last && last->a == next->a * next->size && last->b == next->b * next->size &&
            last->c == next->c * next->size && last->bias == next->bias * next->size)
            *last = (Axis){ next->name, last->size * next->size, next->a, next->b, next->c, next->bias };
        else
            list->at[count++] = *next;
    }
    list->count = count;
}

static void find_axes(Module *m, const Op *dot, const ProductValues *v, AxisList kinds[N_KINDS])
{
    const Value *a = v->a, *b = v->b, *c = v->c, *bias = v->bias, *operands[] = { a, b };
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < operands[i]->type.rank; j++) {
            const Dim *dim = &operands[i]->type.dim[j];
            bool in_a = find_dim(&a->type, dim->name) >= 0, in_b = find_dim(&b->type, dim->name) >= 0;
            if (i == 1 && in_a)
                continue;
            int kind = has_name(&dot->attrs.over, dim->name) ? KIND_K
                       : in_a && in_b                        ? KIND_BATCH
                       : in_a                                ? KIND_M
                                                             : KIND_N;
            add_axis(&kinds[kind],
                     (Axis){ dim->name, loop_size(m, dim), stride_of(a, dim->name), stride_of(b, dim->name),
                             stride_of(c, dim->name), bias ? stride_of(bias, dim->name) : 0 });
        }
    for (int kind = 0; kind < N_KINDS; kind++)
        merge_axes(&kinds[kind]);
}

/* In a matrix of one row or one column that stride is arbitrary: sets it to that of a dense matrix. */
static bool has_unit_stride(int64_t rows, int64_t *row, int64_t columns, int64_t *column)
{
    if (rows == 1)
        *row = *column == 1 ? columns : 1;
    if (columns == 1 && *row != 1)
        *column = 1;
    return *row == 1 || *column == 1;
}

/* The shape with one axis of each kind; -1: a matrix of one row or one column. */
static bool shape_of(const AxisList kinds[], int m, int n, RtProductShape *s)
{
    static const Axis one = { .size = 1 };
    const Axis *rows = m < 0 ? &one : &kinds[KIND_M].at[m], *columns = n < 0 ? &one : &kinds[KIND_N].at[n];
    const Axis *sum = kinds[KIND_K].count ? &kinds[KIND_K].at[0] : &one;
    s->m = rows->size;
    s->n = columns->size;
    s->k = sum->size;
    s->a.row = rows->a;
    s->a.column = sum->a;
    s->b.row = sum->b;
    s->b.column = columns->b;
    s->c.row = rows->c;
    s->c.column = columns->c;
    return (!s->has_bias || n < 0 || columns->bias == 1) && has_unit_stride(s->m, &s->a.row, s->k, &s->a.column) &&
           has_unit_stride(s->k, &s->b.row, s->n, &s->b.column) && has_unit_stride(s->m, &s->c.row, s->n, &s->c.column);
}

/* The largest of the remaining axes becomes the batch, which has one bias; the others are loops. */
static void put_around(Product *p, const AxisList *left)
{
    int batch = -1;
    for (int i = 0; i < left->count; i++)
        if (!left->at[i].bias && (batch < 0 || left->at[i].size > left->at[batch].size))
            batch = i;
    p->shape.batch = 1;
    for (int i = 0; i < left->count; i++) {
        const Axis *axis = &left->at[i];
        if (i == batch) {
            p->shape.batch = axis->size;
            p->shape.a.batch = axis->a;
            p->shape.b.batch = axis->b;
            p->shape.c.batch = axis->c;
        } else {
            p->loop[p->nloops].dim = axis->name;
            p->loop[p->nloops].count = axis->size;
            p->loop[p->nloops].a = axis->a;
            p->loop[p->nloops].b = axis->b;
            p->loop[p->nloops].c = axis->c;
            p->loop[p->nloops++].bias = axis->bias;
        }
    }
}

enum { LEAST_COUNTED = 16 };

/* Is the axis, whole, one of rows that a dispatch fills in part? */
static bool is_counted(Module *m, const AxisList *kind, int at)
{
    const Axis *axis = at < 0 || kind->count == 0 ? NULL : &kind->at[at];
    const Op *fills = axis && axis->size >= LEAST_COUNTED ? filled_by(m, axis->name) : NULL;
    return fills && loop_size(m, &result(fills)->type.dim[find_dim(&result(fills)->type, axis->name)]) == axis->size;
}

/* Which size of the product counts filled rows, if they are contiguous where that can be seen? */
static RtCounted counted_size(Module *m, const AxisList kinds[], int at_m, int at_n, const RtProductShape *s)
{
    if (s->has_bias || s->activation)
        return RT_NOT_COUNTED;
    if (is_counted(m, &kinds[KIND_M], at_m) && s->a.column == 1)
        return RT_COUNTED_M;
    if (is_counted(m, &kinds[KIND_N], at_n) && s->b.row == 1)
        return RT_COUNTED_N;
    return is_counted(m, &kinds[KIND_K], 0) && (s->a.row == 1 || s->b.column == 1) ? RT_COUNTED_K : RT_NOT_COUNTED;
}

/* Are blocks along this dim of an operand so long, on each rank, and do they follow one another along the axis? */
static bool is_in_blocks(Module *m, const Value *operand, Name name, const Axis *axis)
{
    const int at = find_dim(&operand->type, name);
    const Dim *dim = at < 0 ? NULL : &operand->type.dim[at];
    return dim && axis->name == name && dim->size % E4M3_BLOCK == 0 && loop_size(m, dim) % E4M3_BLOCK == 0;
}

/* The neighbours along k that quantize.c has given a scale of their own, if GPUs have products for so many. */
static int64_t block_along(Module *m, const Op *dot, const AxisList *sum)
{
    const bool is_rounded = dot->attrs.fp8 == FP8_ROUNDED && sum->count == 1;
    return is_rounded && is_in_blocks(m, arg(dot, 0), dot->attrs.dim, &sum->at[0]) ? E4M3_BLOCK : 0;
}

/* The operand whose blocks are squares. */
static RtSquares squares_of(Module *m, const Op *dot, const Axis *rows, const Axis *columns)
{
    const Name across = dot->attrs.across;
    if (across && rows && is_in_blocks(m, arg(dot, 0), across, rows))
        return RT_SQUARES_A;
    return across && columns && is_in_blocks(m, arg(dot, 1), across, columns) ? RT_SQUARES_B : RT_NO_SQUARES;
}

/* The largest product that rt_product supports among all choices of one m and one n. */
static void choose_shape(Module *m, const AxisList kinds[N_KINDS], Product *p)
{
    int best_m = -1, best_n = -1;
    int64_t best = 0;
    for (int i = kinds[KIND_M].count ? 0 : -1; i < kinds[KIND_M].count; i++)
        for (int j = kinds[KIND_N].count ? 0 : -1; j < kinds[KIND_N].count; j++) {
            RtProductShape shape = p->shape;
            if (shape_of(kinds, i, j, &shape) && shape.m * shape.n > best) {
                best = shape.m * shape.n;
                best_m = i;
                best_n = j;
            }
        }
    p->naive = best <= 1 || kinds[KIND_K].count > 1; /* of one row and one column: not worth a library call */
    if (p->naive)
        return;
    shape_of(kinds, best_m, best_n, &p->shape);
    p->shape.block = block_along(m, p->dot, &kinds[KIND_K]);
    if (p->shape.block)
        p->shape.squares = squares_of(m, p->dot, best_m < 0 ? NULL : &kinds[KIND_M].at[best_m],
                                      best_n < 0 ? NULL : &kinds[KIND_N].at[best_n]);
    p->shape.counted = counted_size(m, kinds, best_m, best_n, &p->shape);
    AxisList left = kinds[KIND_BATCH];
    for (int i = 0; i < kinds[KIND_M].count; i++)
        if (i != best_m)
            left.at[left.count++] = kinds[KIND_M].at[i];
    for (int i = 0; i < kinds[KIND_N].count; i++)
        if (i != best_n)
            left.at[left.count++] = kinds[KIND_N].at[i];
    put_around(p, &left);
}

void shape_product(Module *m, Product *p, const ProductValues *values)
{
    AxisList kinds[N_KINDS] = { { 0 } };
    find_axes(m, p->dot, values, kinds);
    choose_shape(m, kinds, p);
}

/* Of two values of the same dims; dims of one element may have any stride. */
static bool same_strides(const Value *x, const Value *y)
{
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dim[i].padded > 1 && x->storage->stride[i] != y->storage->stride[i])
            return false;
    return true;
}

bool sums_in_result(const Module *m, const Value *added, const Value *c)
{
    return same_strides(added, c) && (have_same_address(added, c) || is_row_major(m, c));
}

static bool refuse(Module *m, const Op *op, const char *why)
{
    error_at(m->diags, (Where){ .at = op->loc }, "internal: product '%s': %s", op->path ? op->path : "", why);
    return false;
}

/* Plans bias, activation and slope; false if an operand is not a parameter of the kernel. */
static bool plan_epilogue(const Func *kernel, const Op *call, const Epilogue *e, Product *p)
{
    unsigned traits = e->activation ? info(e->activation)->traits : e->slope ? info(e->slope)->traits : 0;
    p->bias = e->bias ? index_of(&kernel->params, e->bias) : -1;
    p->before = e->activation ? index_of(&kernel->results, e->before) : -1;
    p->at = e->slope ? index_of(&kernel->params, e->before) : -1;
    p->activation = e->activation;
    p->slope = e->slope;
    p->shape.has_bias = e->bias;
    p->shape.activation = traits & IS_RELU              ? RT_RELU
                          : traits & IS_GELU_TANH       ? RT_GELU_TANH
                          : traits & IS_GELU_TANH_SLOPE ? RT_GELU_TANH_SLOPE
                                                        : RT_NO_ACTIVATION;
    p->shape.keeps_before = p->before >= 0;
    return (!e->bias || p->bias >= 0) && (!e->slope || (p->at >= 0 && arg(call, p->at)->storage)) &&
           (p->before < 0 || call->results.at[p->before]->storage);
}

/* Do loops, batch, rows and columns stay inside the operand? */
static bool covers(Module *m, const Op *call, const Value *value, const Product *p, const int64_t around[],
                   const Access *matrix)
{
    Access access = *matrix;
    for (int i = 0; i < p->nloops; i++)
        add_access(&access, p->loop[i].count, around[i]);
    return access_stays_inside(m, call, value->name, &value->type, value->storage, &access);
}

static bool check_product(Module *m, const Op *call, const Product *p)
{
    const RtProductShape *s = &p->shape;
    int64_t a[MAX_RANK], b[MAX_RANK], c[MAX_RANK], bias[MAX_RANK];
    if (p->naive) /* indexed by the strides of its operands' own dims */
        return true;
    for (int i = 0; i < p->nloops; i++)
        a[i] = p->loop[i].a, b[i] = p->loop[i].b, c[i] = p->loop[i].c, bias[i] = p->loop[i].bias;
    const Access left = { 3, { s->batch, s->m, s->k }, { s->a.batch, s->a.row, s->a.column } };
    const Access right = { 3, { s->batch, s->k, s->n }, { s->b.batch, s->b.row, s->b.column } };
    const Access made = { 3, { s->batch, s->m, s->n }, { s->c.batch, s->c.row, s->c.column } };
    const Access row = { 1, { s->n }, { 1 } };
    return covers(m, call, arg(call, p->a), p, a, &left) && covers(m, call, arg(call, p->b), p, b, &right) &&
           covers(m, call, call->results.at[p->c], p, c, &made) &&
           (p->before < 0 || covers(m, call, call->results.at[p->before], p, c, &made)) &&
           (p->at < 0 || covers(m, call, arg(call, p->at), p, c, &made)) &&
           (p->copied < 0 || covers(m, call, arg(call, p->copied), p, c, &made)) &&
           (p->bias < 0 || covers(m, call, arg(call, p->bias), p, bias, &row));
}

/* Plans one of the products that are added up in result `c`. */
static bool plan_product(Module *m, const Func *kernel, const Op *call, int c, const Epilogue *term, Product *p)
{
    *p = (Product){ .dot = term->dot, .c = c, .copied = -1, .terms = 1 };
    p->a = index_of(&kernel->params, arg(p->dot, 0));
    p->b = index_of(&kernel->params, arg(p->dot, 1));
    for (int i = 0; i < 2; i++)
        p->from[i] = rounded_from(p->dot, i) ? index_of(&kernel->params, rounded_from(p->dot, i)) : -1;
    if (p->a < 0 || p->b < 0 || !plan_epilogue(kernel, call, term, p))
        return refuse(m, call, "an operand is computed inside of the kernel");
    const Value *a = arg(call, p->a), *b = arg(call, p->b), *made = call->results.at[c];
    if (!a->storage || !b->storage || !made->storage)
        return refuse(m, call, "an operand has no storage");
    if (!is_float(a->type.dtype) || !is_float(b->type.dtype) || !is_float(made->type.dtype))
        return refuse(m, call, "integers are not multiplied");
    if (dims_lacking(&made->type, &result(term->dot)->type).count)
        return refuse(m, call, "the result has a dim that the product lacks");
    if (term->added) {
        int added = index_of(&kernel->params, term->added);
        if (!sums_in_result(m, arg(call, added), made))
            return refuse(m, call, "the accumulator and the result have different memory orders");
        p->shape.accumulate = true;
        p->copied = have_same_address(arg(call, added), made) ? -1 : added;
    }
    p->shape.a.type = element_rt_type(a->type.dtype);
    p->shape.b.type = element_rt_type(b->type.dtype);
    p->shape.c.type = element_rt_type(made->type.dtype);
    shape_product(m, p, &(ProductValues){ a, b, made, p->bias < 0 ? NULL : arg(call, p->bias) });
    p->naive |= (p->before >= 0 && !same_strides(call->results.at[p->before], made)) ||
                (p->at >= 0 && !same_strides(arg(call, p->at), made));
    return check_product(m, call, p);
}

/* Is it the operand of an activation, written together with another result? */
static bool is_kept_operand(const Func *kernel, const Value *result)
{
    for (int i = 0; i < kernel->results.count; i++)
        if (epilogue_of(kernel->results.at[i]).before == result)
            return true;
    return false;
}

int plan_each_product(Module *m, const Func *kernel, const Op *call, Product **products)
{
    int count = 0;
    *products = NEW_ARRAY(&m->arena, Product, kernel->results.count * MAX_TERMS + 1);
    for (int i = 0; i < kernel->results.count; i++) {
        Epilogue term[MAX_TERMS];
        if (is_kept_operand(kernel, kernel->results.at[i]))
            continue;
        const int terms = terms_of(kernel->results.at[i], term);
        if (terms == 0) {
            refuse(m, call, "a result is neither a product, with or without an epilogue, nor a sum of products");
            return 0;
        }
        for (int k = 0; k < terms; k++) {
            term[k].added = term[0].added;
            if (!plan_product(m, kernel, call, i, &term[k], &(*products)[count++]))
                return 0;
        }
    }
    return count;
}
