/* product.c -- matrix products through oneDNN.
 *
 * A product is described once, before training, and run often: oneDNN's matmul primitive over the strides
 * that the program asks for.  Its scratchpad is ours: one workspace for all products, since they run one at a
 * time.  bf16 where the processor multiplies it; elsewhere, and for f16, operands are converted to f32
 * in the workspace and the result is rounded once.
 */
#include "convert.h"
#include "state.h"

#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C, OPERANDS };

typedef struct {
    RtProductShape shape; /* as asked for */
    bool converted;       /* through f32 copies in the workspace */
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[OPERANDS], scratch;
} Product;

struct RtProducts {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Product *product;
    int count;
    char *workspace;
    int64_t workspace_bytes, scratch_bytes; /* scratchpad first, then three converted operands */
};

static const int arguments[OPERANDS] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST };

static void check(dnnl_status_t status, const char *what, const RtProductShape *s)
{
    if (status == dnnl_success)
        return;
    if (s)
        rt_fail("oneDNN cannot %s for a product of %lld x %lld x %lld (status %d)", what, (long long)s->m,
                (long long)s->n, (long long)s->k, (int)status);
    rt_fail("oneDNN cannot %s (status %d)", what, (int)status);
}

static struct RtProducts *products_of(Rt *rt)
{
    if (!rt->products) {
        rt->products = rt_allocate(1, sizeof *rt->products);
        check(dnnl_engine_create(&rt->products->engine, dnnl_cpu, 0), "start", NULL);
        check(dnnl_stream_create(&rt->products->stream, rt->products->engine, dnnl_stream_default_flags), "start",
              NULL);
    }
    return rt->products;
}

static bool has_bf16(void)
{
#if defined(__x86_64__)
    return getenv("MPC_EMULATE_BF16") == NULL && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

static bool is_native(RtType type) { return type == RT_F32 || (type == RT_BF16 && has_bf16()); }

/* --- Shapes -------------------------------------------------------------------------------- */

typedef struct {
    int64_t rows, columns, row, column, batch;
    RtType type;
} Matrix;

static Matrix matrix_of(const RtProductShape *s, int operand)
{
    switch (operand) {
    case A:
        return (Matrix){ s->m, s->k, s->a.row, s->a.column, s->a.batch, s->a.type };
    case B:
        return (Matrix){ s->k, s->n, s->b.row, s->b.column, s->b.batch, s->b.type };
    default:
        return (Matrix){ s->m, s->n, s->c.row, s->c.column, s->c.batch, s->c.type };
    }
}

static int64_t matrices(const RtProductShape *s, int operand)
{
    return s->batch > 1 && matrix_of(s, operand).batch == 0 ? 1 : s->batch;
}

/* The same shape on dense f32 copies. */
static RtProductShape converted_shape(RtProductShape s)
{
    s.a.type = s.b.type = s.c.type = RT_F32;
    s.a.row = s.k, s.a.column = 1, s.a.batch = s.a.batch ? s.m * s.k : 0;
    s.b.row = s.n, s.b.column = 1, s.b.batch = s.b.batch ? s.k * s.n : 0;
    s.c.row = s.n, s.c.column = 1, s.c.batch = s.m * s.n;
    return s;
}

static int64_t converted_bytes(const RtProductShape *s, int operand)
{
    const Matrix x = matrix_of(s, operand);
    return (x.rows * x.columns * matrices(s, operand) * 4 + 63) / 64 * 64;
}

static void describe(dnnl_memory_desc_t *md, const RtProductShape *s, int operand)
{
    const Matrix x = matrix_of(s, operand);
    const dnnl_data_type_t type = x.type == RT_BF16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_dims_t dims = { matrices(s, operand), x.rows, x.columns };
    const dnnl_dims_t strides = { x.batch ? x.batch : x.rows * x.columns, x.row, x.column };
    const int skip = s->batch > 1 ? 0 : 1;
    check(dnnl_memory_desc_init_by_strides(md, 3 - skip, dims + skip, type, strides + skip), "describe memory", s);
}

/* --- Creation ------------------------------------------------------------------------------ */

static dnnl_primitive_desc_t describe_product(struct RtProducts *all, const RtProductShape *s,
                                              const dnnl_memory_desc_t md[])
{
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t primitive_desc;
    check(dnnl_matmul_desc_init(&desc, &md[A], &md[B], NULL, &md[C]), "describe it", s);
    check(dnnl_primitive_attr_create(&attributes), "set attributes", s);
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), "set attributes", s);
    if (s->accumulate) {
        dnnl_post_ops_t after;
        check(dnnl_post_ops_create(&after), "add to the result", s);
        check(dnnl_post_ops_append_sum(after, 1.0f), "add to the result", s);
        check(dnnl_primitive_attr_set_post_ops(attributes, after), "add to the result", s);
        dnnl_post_ops_destroy(after);
    }
    check(dnnl_primitive_desc_create(&primitive_desc, &desc, attributes, all->engine, NULL), "find a kernel", s);
    dnnl_primitive_attr_destroy(attributes);
    return primitive_desc;
}

static void grow_workspace(struct RtProducts *all, int64_t scratch, int64_t copies)
{
    scratch = (scratch + 63) / 64 * 64;
    const int64_t before = all->workspace_bytes - all->scratch_bytes;
    all->scratch_bytes = scratch > all->scratch_bytes ? scratch : all->scratch_bytes;
    all->workspace_bytes = all->scratch_bytes + (copies > before ? copies : before);
    free(all->workspace);
    all->workspace = NULL; /* made when first needed, once its size is known */
}

void rt_product_create(Rt *rt, int id, RtProductShape shape)
{
    struct RtProducts *all = products_of(rt);
    if (id >= all->count) {
        all->product = realloc(all->product, (size_t)(id + 1) * sizeof *all->product);
        if (!all->product)
            rt_fail("out of memory");
        memset(all->product + all->count, 0, (size_t)(id + 1 - all->count) * sizeof *all->product);
        all->count = id + 1;
    }
    Product *p = &all->product[id];
    p->shape = shape;
    p->converted = !is_native(shape.a.type) || !is_native(shape.b.type) || !is_native(shape.c.type) ||
                   shape.a.type != shape.b.type || (shape.a.type == RT_F32 && shape.c.type != RT_F32);
    const RtProductShape run = p->converted ? converted_shape(shape) : shape;
    dnnl_memory_desc_t md[OPERANDS];
    for (int i = 0; i < OPERANDS; i++)
        describe(&md[i], &run, i);
    dnnl_primitive_desc_t desc = describe_product(all, &run, md);
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    check(dnnl_primitive_create(&p->primitive, desc), "make a kernel", &shape);
    for (int i = 0; i < OPERANDS; i++)
        check(dnnl_memory_create(&p->memory[i], &md[i], all->engine, DNNL_MEMORY_NONE), "describe memory", &shape);
    check(dnnl_memory_create(&p->scratch, scratch, all->engine, DNNL_MEMORY_NONE), "describe memory", &shape);
    int64_t copies = 0;
    for (int i = 0; p->converted && i < OPERANDS; i++)
        copies += converted_bytes(&shape, i);
    grow_workspace(all, (int64_t)dnnl_memory_desc_get_size(scratch), copies);
    dnnl_primitive_desc_destroy(desc);
}

/* --- Running ------------------------------------------------------------------------------- */

static float load(const void *array, int64_t at, RtType type)
{
    switch (type) {
    case RT_BF16:
        return rt_float_of_bf16(((const uint16_t *)array)[at]);
    case RT_F16:
        return rt_float_of_f16(((const uint16_t *)array)[at]);
    default:
        return ((const float *)array)[at];
    }
}

static void store(void *array, int64_t at, float x, RtType type)
{
    switch (type) {
    case RT_BF16:
        ((uint16_t *)array)[at] = rt_bf16_of_float(x);
        break;
    case RT_F16:
        ((uint16_t *)array)[at] = rt_f16_of_float(x);
        break;
    default:
        ((float *)array)[at] = x;
    }
}

/* Between an operand and its dense f32 copy; `back`: from the copy to the operand. */
static void convert(const RtProductShape *s, int operand, void *array, float *copy, bool back)
{
    const Matrix x = matrix_of(s, operand);
    const int64_t n = matrices(s, operand);
#pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < n; b++)
        for (int64_t i = 0; i < x.rows; i++)
            for (int64_t j = 0; j < x.columns; j++) {
                const int64_t at = b * x.batch + i * x.row + j * x.column;
                float *dense = &copy[(b * x.rows + i) * x.columns + j];
                if (back)
                    store(array, at, *dense, x.type);
                else
                    *dense = load(array, at, x.type);
            }
}

static void need_workspace(struct RtProducts *all)
{
    if (all->workspace || all->workspace_bytes == 0)
        return;
    all->workspace = aligned_alloc(64, (size_t)all->workspace_bytes);
    if (!all->workspace)
        rt_fail("out of memory: the products need a workspace of %s", rt_bytes_text((double)all->workspace_bytes).text);
}

void rt_product(Rt *rt, int id, const void *a, const void *b, void *c)
{
    struct RtProducts *all = rt->products;
    Product *p = &all->product[id];
    void *operand[OPERANDS] = { (void *)a, (void *)b, c }, *used[OPERANDS] = { (void *)a, (void *)b, c };
    need_workspace(all);
    char *copy = all->workspace + all->scratch_bytes;
    for (int i = 0; p->converted && i < OPERANDS; i++) {
        used[i] = copy;
        copy += converted_bytes(&p->shape, i);
        if (i != C || p->shape.accumulate)
            convert(&p->shape, i, operand[i], used[i], false);
    }
    dnnl_exec_arg_t args[OPERANDS + 1];
    for (int i = 0; i < OPERANDS; i++) {
        check(dnnl_memory_set_data_handle(p->memory[i], used[i]), "use memory", &p->shape);
        args[i] = (dnnl_exec_arg_t){ arguments[i], p->memory[i] };
    }
    check(dnnl_memory_set_data_handle(p->scratch, all->workspace), "use memory", &p->shape);
    args[OPERANDS] = (dnnl_exec_arg_t){ DNNL_ARG_SCRATCHPAD, p->scratch };
    check(dnnl_primitive_execute(p->primitive, all->stream, OPERANDS + 1, args), "run", &p->shape);
    if (p->converted)
        convert(&p->shape, C, c, used[C], true);
}

int64_t rt_products_workspace_bytes(const Rt *rt) { return rt->products ? rt->products->workspace_bytes : 0; }

void rt_products_free(Rt *rt)
{
    struct RtProducts *all = rt->products;
    if (!all)
        return;
    for (int i = 0; i < all->count; i++) {
        Product *p = &all->product[i];
        for (int j = 0; p->primitive && j < OPERANDS; j++)
            dnnl_memory_destroy(p->memory[j]);
        if (p->primitive) {
            dnnl_memory_destroy(p->scratch);
            dnnl_primitive_destroy(p->primitive);
        }
    }
    dnnl_stream_destroy(all->stream);
    dnnl_engine_destroy(all->engine);
    free(all->workspace);
    free(all->product);
    free(all);
    rt->products = NULL;
}

/* --- The machine's best product -------------------------------------------------------------- */

static double measure(RtType type, int64_t size, double seconds)
{
    Rt own = { 0 };
    const RtProductShape shape = { .m = size,
                                   .n = size,
                                   .k = size,
                                   .batch = 1,
                                   .a = { type, size, 1, 0 },
                                   .b = { type, size, 1, 0 },
                                   .c = { type, size, 1, 0 } };
    char *memory = rt_allocate(size * size * 3, 4);
    double best = 0, start = rt_seconds();
    rt_product_create(&own, 0, shape);
    for (int turn = 0; turn < 3 || rt_seconds() - start < seconds; turn++) {
        const double before = rt_seconds();
        rt_product(&own, 0, memory, memory + size * size * 4, memory + size * size * 8);
        const double flops = 2.0 * (double)(size * size * size) / (rt_seconds() - before);
        best = flops > best ? flops : best;
    }
    rt_products_free(&own);
    free(memory);
    return best;
}

double rt_product_peak(Rt *rt, double seconds)
{
    const bool bf16 = has_bf16() && rt->program && strcmp(rt->program->precision, "bf16") == 0;
    const double small = measure(bf16 ? RT_BF16 : RT_F32, 768, seconds / 2);
    const double large = measure(bf16 ? RT_BF16 : RT_F32, 1536, seconds / 2);
    return small > large ? small : large;
}
