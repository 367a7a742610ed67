/* product.c -- dots as products of matrices: which dims are rows, columns, batch, and which are loops around them.
 *
 * A dim of a dot is one of four kinds, by who has it: m (only the left operand), n (only the right),
 * k (both, summed) and batch (both, kept).  Dims of a kind that lie one behind the other in every operand
 * are one dim.  What is left over of m and n becomes the batch, or a loop around the product.
 */
#include "ir/epilogue.h"
#include "ir/storage.h"
#include "names.h"
#include "templates.h"

#include <inttypes.h>
#include <string.h>

/* A dim, or several that are one in memory; 0 is the stride in an operand that does not have it. */
typedef struct {
    Name name;
    int64_t size, a, b, c;
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

static int64_t stride_of(const Value *value, Name dim)
{
    int at = find_dim(&value->type, dim);
    return at < 0 ? 0 : value->storage->stride[at];
}

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
            last->c == next->c * next->size)
            *last = (Axis){ next->name, last->size * next->size, next->a, next->b, next->c };
        else
            list->at[count++] = *next;
    }
    list->count = count;
}

static void find_axes(Module *m, const Op *dot, const Value *a, const Value *b, const Value *c, AxisList kinds[N_KINDS])
{
    const Value *operands[] = { a, b };
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
            add_axis(&kinds[kind], (Axis){ dim->name, loop_size(m, dim), stride_of(a, dim->name),
                                           stride_of(b, dim->name), stride_of(c, dim->name) });
        }
    for (int kind = 0; kind < N_KINDS; kind++)
        merge_axes(&kinds[kind]);
}

/* A matrix of one row or one column may have any stride there: the one that makes it ordinary. */
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
    return has_unit_stride(s->m, &s->a.row, s->k, &s->a.column) &&
           has_unit_stride(s->k, &s->b.row, s->n, &s->b.column) && has_unit_stride(s->m, &s->c.row, s->n, &s->c.column);
}

/* The largest of the axes that are left goes into the batch, the others are loops. */
static void put_around(Product *p, const AxisList *left)
{
    int batch = -1;
    for (int i = 0; i < left->count; i++)
        if (batch < 0 || left->at[i].size > left->at[batch].size)
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
            p->loop[p->nloops++].c = axis->c;
        }
    }
}

/* Of all choices of one m and one n the largest that rt_product takes. */
static void choose_shape(const AxisList kinds[N_KINDS], Product *p)
{
    int best_m = -1, best_n = -1;
    int64_t best = 0;
    for (int m = kinds[KIND_M].count ? 0 : -1; m < kinds[KIND_M].count; m++)
        for (int n = kinds[KIND_N].count ? 0 : -1; n < kinds[KIND_N].count; n++) {
            RtProductShape shape = p->shape;
            if (shape_of(kinds, m, n, &shape) && shape.m * shape.n > best) {
                best = shape.m * shape.n;
                best_m = m;
                best_n = n;
            }
        }
    p->naive = best == 0 || kinds[KIND_K].count > 1;
    if (p->naive)
        return;
    shape_of(kinds, best_m, best_n, &p->shape);
    AxisList left = kinds[KIND_BATCH];
    for (int i = 0; i < kinds[KIND_M].count; i++)
        if (i != best_m)
            left.at[left.count++] = kinds[KIND_M].at[i];
    for (int i = 0; i < kinds[KIND_N].count; i++)
        if (i != best_n)
            left.at[left.count++] = kinds[KIND_N].at[i];
    put_around(p, &left);
}

static bool same_strides(const Value *x, const Value *y)
{
    return memcmp(x->storage->stride, y->storage->stride, (size_t)x->type.rank * sizeof(int64_t)) == 0;
}

static bool refuse(Module *m, const Op *op, const char *why)
{
    error_at(m->diags, (Where){ .at = op->loc }, "internal: product '%s': %s", op->path ? op->path : "", why);
    return false;
}

static bool plan_product(Module *m, const Func *kernel, const Op *call, int result_index, Product *p)
{
    Epilogue epilogue;
    if (!find_epilogue(kernel->results.at[result_index], &epilogue))
        return refuse(m, call, "a result is no dot, nor one added to a parameter");
    *p = (Product){ .dot = epilogue.dot, .c = result_index, .copied = -1 };
    p->a = index_of(&kernel->params, arg(p->dot, 0));
    p->b = index_of(&kernel->params, arg(p->dot, 1));
    if (p->a < 0 || p->b < 0)
        return refuse(m, call, "an operand is computed inside of the kernel");
    const Value *a = arg(call, p->a), *b = arg(call, p->b), *c = call->results.at[result_index];
    if (!a->storage || !b->storage || !c->storage)
        return refuse(m, call, "an operand has no place in memory");
    if (!is_float(a->type.dtype) || !is_float(b->type.dtype) || !is_float(c->type.dtype))
        return refuse(m, call, "integers are not multiplied");
    if (epilogue.added) {
        int added = index_of(&kernel->params, epilogue.added);
        if (!same_strides(arg(call, added), c))
            return refuse(m, call, "what it adds to lies in another order than its result");
        p->shape.accumulate = true;
        p->copied = coincide(arg(call, added), c) ? -1 : added;
    }
    p->shape.a.type = element_rt_type(a->type.dtype);
    p->shape.b.type = element_rt_type(b->type.dtype);
    p->shape.c.type = element_rt_type(c->type.dtype);
    AxisList kinds[N_KINDS] = { { 0 } };
    find_axes(m, p->dot, a, b, c, kinds);
    choose_shape(kinds, p);
    return true;
}

/* --- Several dots --------------------------------------------------------------------------------------- */

/* How many bytes the second of two values begins behind the first; false where that is not known. */
static bool distance(const Value *first, const Value *second, int64_t *bytes)
{
    const Storage *a = first->storage, *b = second->storage;
    *bytes = b->at < 0 ? b->plus - a->plus : b->at - a->at;
    return (a->at >= 0 && b->at >= 0) || a->at == b->at;
}

/* `next` begins where `product` ends, in B and in C: one product of more columns. */
static bool lies_beside(const Op *call, const Product *product, const Product *next)
{
    const RtProductShape *s = &product->shape, *t = &next->shape;
    const Value *b = arg(call, product->b), *c = call->results.at[product->c];
    int64_t of_b, of_c;
    return distance(b, arg(call, next->b), &of_b) && distance(c, call->results.at[next->c], &of_c) && !product->naive &&
           !next->naive && product->copied < 0 && next->copied < 0 && product->a == next->a && !product->nloops &&
           !next->nloops && s->m == t->m && s->k == t->k && s->batch == t->batch && s->accumulate == t->accumulate &&
           memcmp(&s->a, &t->a, sizeof s->a) == 0 && memcmp(&s->b, &t->b, sizeof s->b) == 0 &&
           memcmp(&s->c, &t->c, sizeof s->c) == 0 && of_b == s->n * s->b.column * dtype_bytes(b->type.dtype) &&
           of_c == s->n * s->c.column * dtype_bytes(c->type.dtype);
}

int plan_products(Module *m, const Func *kernel, const Op *call, Product products[MAX_PRODUCTS])
{
    int count = 0;
    for (int i = 0; i < kernel->results.count; i++) {
        Product next;
        if (!plan_product(m, kernel, call, i, &next))
            return 0;
        if (count && lies_beside(call, &products[count - 1], &next))
            products[count - 1].shape.n += next.shape.n;
        else if (count == MAX_PRODUCTS)
            return refuse(m, call, "too many dots in one kernel");
        else
            products[count++] = next;
    }
    return count;
}

/* --- C ---------------------------------------------------------------------------------------------------- */

static const char *const constant_of[] = { [RT_F32] = "RT_F32", [RT_BF16] = "RT_BF16", [RT_F16] = "RT_F16" };

static char *matrix_text(Module *m, RtType type, int64_t row, int64_t column, int64_t batch)
{
    return arena_text(&m->arena, "{ %s, %" PRId64 ", %" PRId64 ", %" PRId64 " }", constant_of[type], row, column,
                      batch);
}

static char *number(Module *m, int64_t value) { return arena_text(&m->arena, "%" PRId64, value); }

char *product_shape_text(Module *m, const RtProductShape *s)
{
    Text text;
    open_text(&text);
    FILL(text.out, product_shape_template, { "m", number(m, s->m) }, { "n", number(m, s->n) }, { "k", number(m, s->k) },
         { "batch", number(m, s->batch) }, { "left", matrix_text(m, s->a.type, s->a.row, s->a.column, s->a.batch) },
         { "right", matrix_text(m, s->b.type, s->b.row, s->b.column, s->b.batch) },
         { "result", matrix_text(m, s->c.type, s->c.row, s->c.column, s->c.batch) },
         { "accumulate", s->accumulate ? "true" : "false" });
    char *lines = close_text(&m->arena, &text);
    lines[strlen(lines) - 1] = '\0'; /* the last line is the caller's to end */
    return lines;
}

static char *loop(Module *m, const char *pragma, const char *index, int64_t count, const char *body)
{
    Text text;
    open_text(&text);
    FILL(text.out, loop_template, { "pragma", pragma }, { "index", index }, { "low", "0" },
         { "high", arena_text(&m->arena, "%" PRId64, count) }, { "body", body });
    return close_text(&m->arena, &text);
}

/* The variable of a loop over a dim; an operand may be called like the dim itself. */
char *index_name(Module *m, Name dim) { return c_identifier(m, arena_text(&m->arena, "i_%s", dim), 24); }

/* A term of an index: " + dim * stride"; "" where the stride is 0. */
static char *step(Module *m, const char *index, int64_t stride)
{
    if (stride == 0)
        return "";
    return stride == 1 ? arena_text(&m->arena, " + %s", index)
                       : arena_text(&m->arena, " + %s * %" PRId64, index, stride);
}

static char *moved(Module *m, const Product *p, int operand, DType dtype, const char *text)
{
    char *steps = "";
    for (int i = 0; i < p->nloops; i++) {
        int64_t stride = operand == 0 ? p->loop[i].a : operand == 1 ? p->loop[i].b : p->loop[i].c;
        steps = arena_text(&m->arena, "%s%s", steps, step(m, index_name(m, p->loop[i].dim), stride));
    }
    if (!*steps)
        return arena_text(&m->arena, "%s", text);
    return arena_text(&m->arena, "(%s%s *)%s%s", operand < 2 ? "const " : "", element_type(dtype), text, steps);
}

char *product_call(Module *m, const Product *p, int id, const Op *call, const char *const operand[])
{
    const char *items[] = {
        "rt",
        arena_text(&m->arena, "%d", id),
        moved(m, p, 0, arg(call, p->a)->type.dtype, operand[p->a]),
        moved(m, p, 1, arg(call, p->b)->type.dtype, operand[p->b]),
        moved(m, p, 2, call->results.at[p->c]->type.dtype, operand[call->args.count + p->c]),
    };
    char *text = wrapped_list(m, "rt_product(", 5, items, ");", 4 + 4 * p->nloops);
    for (int i = p->nloops - 1; i >= 0; i--)
        text = loop(m, "", index_name(m, p->loop[i].dim), p->loop[i].count, arena_text(&m->arena, "%s\n", text));
    return text;
}

static char *element_text(Module *m, const char *array, const Value *value, const Names *dims)
{
    char *index = "";
    for (int i = 0; i < dims->count; i++)
        index = arena_text(&m->arena, "%s%s", index,
                           step(m, index_name(m, dims->name[i]), stride_of(value, dims->name[i])));
    return arena_text(&m->arena, "%s[%s]", array, *index ? index + 3 : "0");
}

static char *float_text(Module *m, DType dtype, const char *element)
{
    return dtype == F32 ? arena_text(&m->arena, "%s", element)
                        : arena_text(&m->arena, "rt_load_%s(%s)", dtype_name[dtype], element);
}

static int64_t size_in(Module *m, const Op *dot, const Value *value, const Value *other, Name dim)
{
    int at = find_dim(&value->type, dim);
    return loop_size(m, at >= 0 ? &value->type.dim[at] : &other->type.dim[find_dim(&other->type, dim)]);
}

char *naive_product_point(Module *m, const Product *p, const Op *call)
{
    const Value *a = arg(call, p->a), *b = arg(call, p->b), *c = call->results.at[p->c];
    Names dims = { 0 };
    for (int i = 0; i < c->type.rank; i++)
        add_name(&dims, c->type.dim[i].name);
    int nouter = dims.count;
    for (int i = 0; i < p->dot->attrs.over.count; i++)
        add_name(&dims, p->dot->attrs.over.name[i]);
    char *from = element_text(m, "c", c, &dims), *text;
    Text body;
    open_text(&body);
    FILL(body.out, "const float x = $a;\nconst float y = $b;\nsum += x * y;\n",
         { "a", float_text(m, a->type.dtype, element_text(m, "a", a, &dims)) },
         { "b", float_text(m, b->type.dtype, element_text(m, "b", b, &dims)) });
    text = close_text(&m->arena, &body);
    for (int i = dims.count - 1; i >= nouter; i--)
        text = loop(m, "", index_name(m, dims.name[i]), size_in(m, p->dot, a, b, dims.name[i]), text);
    const char *start = p->shape.accumulate ? float_text(m, c->type.dtype, from) : "0.0f";
    const char *sum =
        c->type.dtype == F32 ? "sum" : arena_text(&m->arena, "rt_store_%s(sum)", dtype_name[c->type.dtype]);
    return arena_text(&m->arena, "float sum = %s;\n%s%s = %s;\n", start, text, from, sum);
}

void emit_naive_product(Module *m, const Product *p, const Op *call, const char *name, FILE *out)
{
    const Value *a = arg(call, p->a), *b = arg(call, p->b), *c = call->results.at[p->c];
    char *text = naive_product_point(m, p, call);
    for (int i = c->type.rank - 1; i >= 0; i--)
        text = loop(m, i == 0 ? "#pragma omp parallel for" : "", index_name(m, c->type.dim[i].name),
                    loop_size(m, &c->type.dim[i]), text);
    FILL(out, naive_product_template, { "where", call->where ? call->where : "" }, { "name", name },
         { "a", element_type(a->type.dtype) }, { "b", element_type(b->type.dtype) },
         { "c", element_type(c->type.dtype) }, { "body", text });
}

char *naive_product_call(Module *m, const Product *p, const char *name, const Op *call, const char *const operand[])
{
    const char *items[] = { operand[p->a], operand[p->b], operand[call->args.count + p->c] };
    return wrapped_list(m, arena_text(&m->arena, "%s(", name), 3, items, ");", 4);
}
