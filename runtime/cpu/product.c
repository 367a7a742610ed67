/* product.c -- matrix products through oneDNN.
 *
 * A product is created once, before training, and run often: oneDNN's matmul primitive with the program's strides, and
 * the kernel that is fastest on this processor (product_kernel.c).  bf16 is multiplied directly if the processor
 * supports it; otherwise, and for f16, operands are converted to f32 in the workspace and the result is rounded once.
 *
 * All products share one workspace, since they run one at a time.  A product that needs a large workspace is split into
 * chunks of rows or columns of the result: for logits in bf16 oneDNN needs an f32 copy of all of them for each thread.
 * The number of OpenMP threads must not grow between creation and run.
 *
 * Bias and activation are oneDNN post-ops, applied in registers.  The operand of the activation is not written.
 */
#include "product.h"

#include "device.h"
#include "kernels/element.h"
#include "onednn.h"

#include <stdlib.h>
#include <string.h>

enum { A, B, C, BIAS, OPERANDS };
enum { CHUNK_BYTES = 32 << 20, APART_BYTES = 8 << 20, LEAST_CHUNK = 512, ALIGNMENT = 4096, CACHE_LINE = 64 };

/* One of the operands: `count` matrices of rows x columns; batch, row, column are strides. */
typedef struct {
    RtType type;
    int64_t count, rows, columns, batch, row, column;
} Matrix;

/* The oneDNN objects of a product, or of a chunk of one. */
typedef struct {
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[OPERANDS], scratch;
    int64_t scratch_bytes;
    bool is_slow; /* oneDNN has only a reference implementation */
    bool is_gemm; /* its implementation is "gemm" */
} Call;

typedef struct RtOneProduct {
    RtProductShape shape;      /* normalised: the stride of C's columns is 1 */
    bool swapped;              /* to that end, computes C^T = B^T A^T */
    bool converted;            /* through f32 copies in the workspace */
    bool apart;                /* the result, without gaps, to the workspace first */
    bool spaced;               /* B from a copy in the workspace, with gaps between its rows */
    int64_t turns;             /* matrices run one after the other; 1: oneDNN runs the batch */
    bool by_rows;              /* chunks are rows of A and C, else columns of B and C */
    int64_t chunk;             /* rows or columns at a time */
    Call whole, last;          /* a whole chunk; the smaller last one, if any */
    int64_t scratch_bytes;     /* of both, at the start of the workspace; copies follow */
    RtCountedProduct *counted; /* instead of all this; NULL: not counted */
} Product;

struct RtProducts {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Product *product;
    int count;
    char *workspace;
    int64_t workspace_bytes;
};

static const int arguments[OPERANDS] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS };

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

/* MPC_EMULATE_BF16=1 disables it. */
bool rt_multiplies_bf16(void)
{
    const int needed = dnnl_cpu_isa_avx512_core_bf16;
    return !getenv("MPC_EMULATE_BF16") && ((int)dnnl_get_effective_cpu_isa() & needed) == needed;
}

static bool is_native(const RtProductShape *s)
{
    if (s->a.type == RT_F32 && s->b.type == RT_F32)
        return s->c.type == RT_F32;
    return s->a.type == RT_BF16 && s->b.type == RT_BF16 && s->c.type != RT_F16 && rt_multiplies_bf16();
}

/* --- Shapes -------------------------------------------------------------------------------- */

static int64_t round_up(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* In a matrix of one row or one column that stride is arbitrary; sets the one that oneDNN accepts. */
static void make_ordinary(int64_t rows, int64_t columns, int64_t *row, int64_t *column)
{
    if (rows == 1 && columns == 1)
        *row = *column = 1;
    else if (rows == 1)
        *row = *column == 1 ? columns : 1;
    else if (columns == 1)
        *column = *row == 1 ? rows : 1;
}

static void swap_operands(RtProductShape *s)
{
    const RtProductShape from = *s;
    s->m = from.n, s->n = from.m;
    s->a.type = from.b.type, s->a.row = from.b.column, s->a.column = from.b.row, s->a.batch = from.b.batch;
    s->b.type = from.a.type, s->b.row = from.a.column, s->b.column = from.a.row, s->b.batch = from.a.batch;
    s->c.row = from.c.column, s->c.column = from.c.row;
}

static int operand_count(const RtProductShape *s) { return s->has_bias ? OPERANDS : BIAS; }

static Matrix matrix_of(const Product *p, const RtProductShape *s, int operand)
{
    Matrix x;
    if (operand == BIAS) /* a row, or a column if swapped */
        return (Matrix){ s->c.type, 1, p->swapped ? s->m : 1, p->swapped ? 1 : s->n, 0, p->swapped ? 1 : s->n, 1 };
    if (operand == A)
        x = (Matrix){ s->a.type, 0, s->m, s->k, s->a.batch, s->a.row, s->a.column };
    else if (operand == B)
        x = (Matrix){ s->b.type, 0, s->k, s->n, s->b.batch, s->b.row, s->b.column };
    else
        x = (Matrix){ s->c.type, 0, s->m, s->n, s->c.batch, s->c.row, s->c.column };
    x.count = x.batch ? s->batch : 1;
    return x;
}

static bool is_copied(const Product *p, int operand)
{
    return p->converted || (p->apart && operand == C) || (p->spaced && operand == B);
}

/* The copy of one matrix, in the same order: dense, unless rows are spaced. */
static Matrix copy_of(const Product *p, Matrix x)
{
    const bool by_columns = x.row == 1 && x.column != 1;
    const int64_t gap = p->spaced ? CACHE_LINE / 4 : 0;
    return (Matrix){ p->converted ? RT_F32 : x.type, 1, x.rows, x.columns, 0, by_columns ? 1 : x.columns + gap,
                     by_columns ? x.rows : 1 };
}

static int64_t type_bytes(RtType type) { return type == RT_F32 ? 4 : 2; }

static int64_t copy_bytes(const Product *p, const RtProductShape *s, int operand)
{
    const Matrix x = copy_of(p, matrix_of(p, s, operand));
    const int64_t elements = x.column == 1 ? x.rows * x.row : x.rows * x.columns;
    return is_copied(p, operand) ? round_up(elements * type_bytes(x.type)) : 0;
}

static int64_t copies_bytes(const Product *p, const RtProductShape *s)
{
    int64_t bytes = 0;
    for (int i = 0; i < operand_count(s); i++)
        bytes += copy_bytes(p, s, i);
    return bytes;
}

static RtProductShape chunk_of(const Product *p, int64_t size)
{
    RtProductShape s = p->shape;
    *(p->by_rows ? &s.m : &s.n) = size;
    s.batch = p->turns > 1 ? 1 : s.batch;
    return s;
}

static int64_t split_size(const Product *p) { return p->by_rows ? p->shape.m : p->shape.n; }

/* --- Creation ------------------------------------------------------------------------------ */

static dnnl_memory_t create_operand(struct RtProducts *all, const RtProductShape *s, const Matrix *x)
{
    const dnnl_dims_t dims = { x->count, x->rows, x->columns };
    const dnnl_dims_t strides = { x->batch ? x->batch : x->rows * x->columns, x->row, x->column };
    const int skip = s->batch > 1 ? 0 : 1;
    dnnl_memory_t memory;
    check(rt_dnnl_memory(&memory, all->engine, 3 - skip, dims + skip, x->type == RT_BF16 ? dnnl_bf16 : dnnl_f32,
                         strides + skip),
          "describe memory", s);
    return memory;
}

static dnnl_post_ops_t after_product(const RtProductShape *s)
{
    static const dnnl_alg_kind_t function[] = {
        [RT_RELU] = dnnl_eltwise_relu, [RT_GELU_TANH] = dnnl_eltwise_gelu_tanh
    };
    dnnl_post_ops_t after;
    check(dnnl_post_ops_create(&after), "set attributes", s);
    if (s->accumulate)
        check(rt_dnnl_append_sum(after), "add to the result", s);
    if (s->activation)
        check(rt_dnnl_append_eltwise(after, function[s->activation]), "apply an activation", s);
    return after;
}

static dnnl_primitive_desc_t describe_product(struct RtProducts *all, const Product *p, const RtProductShape *s,
                                              const dnnl_memory_t operand[])
{
    const char *kernel = rt_product_kernel(p->converted ? RT_F32 : s->a.type, s->a.row == 1 && s->a.column != 1);
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t matmul;
    check(dnnl_primitive_attr_create(&attributes), "set attributes", s);
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), "set attributes", s);
    dnnl_post_ops_t after = after_product(s);
    check(dnnl_primitive_attr_set_post_ops(attributes, after), "set attributes", s);
    dnnl_post_ops_destroy(after);
    check(rt_dnnl_matmul(&matmul, kernel, all->engine, operand[A], operand[B], s->has_bias ? operand[BIAS] : NULL,
                         operand[C], attributes),
          "find a kernel", s);
    dnnl_primitive_attr_destroy(attributes);
    return matmul;
}

static Call create_call(struct RtProducts *all, const Product *p, const RtProductShape *s)
{
    Call call = { 0 };
    for (int i = 0; i < operand_count(s); i++) {
        const Matrix own = matrix_of(p, s, i), x = is_copied(p, i) ? copy_of(p, own) : own;
        call.memory[i] = create_operand(all, s, &x);
    }
    dnnl_primitive_desc_t desc = describe_product(all, p, s, call.memory);
    const RtDnnlLayout scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    const char *kernel = "";
    check(dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &kernel), "name its kernel", s);
    call.is_slow = strncmp(kernel, "ref", 3) == 0, call.is_gemm = strncmp(kernel, "gemm", 4) == 0;
    check(dnnl_memory_create(&call.scratch, scratch, all->engine, DNNL_MEMORY_NONE), "describe memory", s);
    call.scratch_bytes = (int64_t)dnnl_memory_desc_get_size(scratch);
    check(dnnl_primitive_create(&call.primitive, desc), "make a kernel", s);
    dnnl_primitive_desc_destroy(desc);
    return call;
}

static void destroy_call(Call *call)
{
    if (!call->primitive)
        return;
    for (int i = 0; i < OPERANDS && call->memory[i]; i++)
        dnnl_memory_destroy(call->memory[i]);
    dnnl_memory_destroy(call->scratch);
    dnnl_primitive_destroy(call->primitive);
}

/* Halves the chunks until their workspace is small enough. */
static void create_calls(struct RtProducts *all, Product *p)
{
    p->by_rows = p->shape.m > p->shape.n;
    const int64_t size = split_size(p);
    for (p->chunk = size;; p->chunk = round_up(p->chunk / 2 * 64) / 64) {
        const RtProductShape s = chunk_of(p, p->chunk);
        p->whole = create_call(all, p, &s);
        const int64_t most = p->apart ? APART_BYTES : CHUNK_BYTES;
        if (p->chunk < 2 * LEAST_CHUNK || p->whole.scratch_bytes + copies_bytes(p, &s) <= most)
            break;
        destroy_call(&p->whole);
    }
    if (size % p->chunk) {
        const RtProductShape s = chunk_of(p, size % p->chunk);
        p->last = create_call(all, p, &s);
    }
}

static void create_calls_anew(struct RtProducts *all, Product *p)
{
    destroy_call(&p->whole);
    destroy_call(&p->last);
    p->last = (Call){ 0 };
    create_calls(all, p);
}

static bool is_faster_spaced(const Product *p)
{
    const RtProductShape *s = &p->shape;
    const bool is_f32 = p->converted || (s->a.type == RT_F32 && s->batch == 1);
    return is_f32 && s->b.column == 1 && rt_dnnl_uses_avx2() &&
           rt_product_is_faster_spaced(s->m, p->converted ? s->n : s->b.row);
}

static Product *new_product(struct RtProducts *all, int id)
{
    if (id >= all->count) {
        all->product = realloc(all->product, (size_t)(id + 1) * sizeof *all->product);
        if (!all->product)
            rt_fail("out of memory");
        memset(all->product + all->count, 0, (size_t)(id + 1 - all->count) * sizeof *all->product);
        all->count = id + 1;
    }
    return &all->product[id];
}

static void put_in_order(Product *p, RtProductShape s)
{
    if (s.m < 1 || s.n < 1 || s.k < 1 || s.batch < 1)
        rt_fail("a product of %lld x %lld x %lld, %lld times: sizes are at least 1", (long long)s.m, (long long)s.n,
                (long long)s.k, (long long)s.batch);
    make_ordinary(s.m, s.k, &s.a.row, &s.a.column);
    make_ordinary(s.k, s.n, &s.b.row, &s.b.column);
    make_ordinary(s.m, s.n, &s.c.row, &s.c.column);
    p->swapped = s.c.column != 1;
    if (p->swapped)
        swap_operands(&s);
    if ((s.a.row != 1 && s.a.column != 1) || (s.b.row != 1 && s.b.column != 1) || s.c.column != 1)
        rt_fail("a product of %lld x %lld x %lld has an operand of which no stride is 1", (long long)s.m,
                (long long)s.n, (long long)s.k);
    if (s.keeps_before || s.sums || s.activation == RT_GELU_TANH_SLOPE)
        rt_fail("a product of %lld x %lld x %lld has an epilogue that only a GPU's library computes", (long long)s.m,
                (long long)s.n, (long long)s.k);
    p->shape = s;
}

static void create_product(struct RtProducts *all, Product *p, RtProductShape shape)
{
    put_in_order(p, shape);
    p->converted = !is_native(&p->shape);
    const bool has_batch = p->shape.a.batch || p->shape.b.batch; /* else oneDNN would compute a single result */
    p->apart = !p->converted && p->shape.a.type == RT_BF16 && p->shape.c.row != p->shape.n && p->shape.m > 1 &&
               !p->shape.accumulate && rt_product_needs_no_gaps();
    p->turns = p->converted || p->apart || !has_batch ? shape.batch : 1;
    create_calls(all, p);
    if (p->whole.is_slow && shape.batch > 1 && p->turns == 1) {
        p->turns = shape.batch;
        create_calls_anew(all, p);
    } else if (p->whole.is_gemm && is_faster_spaced(p)) {
        p->spaced = true;
        create_calls_anew(all, p);
    }
    const RtProductShape s = chunk_of(p, p->chunk);
    const int64_t last = p->last.primitive ? p->last.scratch_bytes : 0;
    p->scratch_bytes = round_up(last > p->whole.scratch_bytes ? last : p->whole.scratch_bytes);
    const int64_t bytes = p->scratch_bytes + copies_bytes(p, &s);
    if (bytes > all->workspace_bytes) {
        all->workspace_bytes = bytes;
        free(all->workspace);
        all->workspace = NULL; /* allocated at first use, when its size is known */
    }
}

void rt_product_create(Rt *rt, int id, RtProductShape shape)
{
    struct RtProducts *all = products_of(rt);
    Product *p = new_product(all, id);
    if (shape.counted)
        p->counted = rt_counted_product(rt, shape);
    else
        create_product(all, p, shape);
}

RtOneProduct *rt_one_product(Rt *rt, RtProductShape shape)
{
    Product *p = rt_allocate(1, sizeof *p);
    create_product(products_of(rt), p, shape);
    return p;
}

/* --- Running ------------------------------------------------------------------------------- */

/* Between a matrix and its copy; `back`: from the copy to the matrix. */
static void convert(const Product *p, Matrix x, char *array, char *copy, bool back)
{
    const Matrix own = copy_of(p, x);
    const bool by_columns = own.row == 1 && x.columns > 1;
    const int64_t lines = by_columns ? x.columns : x.rows, length = by_columns ? x.rows : x.columns;
    const int64_t stride = by_columns ? x.column : x.row, bytes = type_bytes(x.type);
    const int64_t distance = by_columns ? own.column : own.row;
#pragma omp parallel for
    for (int64_t i = 0; i < lines; i++) {
        float *line = (float *)(void *)copy + i * distance; /* if converted */
        char *there = array + i * stride * bytes, *here = copy + i * distance * bytes;
        if (!p->converted)
            memcpy(back ? there : here, back ? here : there, (size_t)(length * bytes));
        else if (back)
            rt_store_row(array, i * stride, length, x.type, line);
        else
            rt_load_row(array, i * stride, length, x.type, line);
    }
}

static void execute(struct RtProducts *all, const Product *p, const Call *call, char *const operand[])
{
    dnnl_exec_arg_t args[OPERANDS + 1];
    const int count = operand_count(&p->shape);
    for (int i = 0; i < count; i++) {
        check(dnnl_memory_set_data_handle(call->memory[i], operand[i]), "use memory", &p->shape);
        args[i] = (dnnl_exec_arg_t){ arguments[i], call->memory[i] };
    }
    check(dnnl_memory_set_data_handle(call->scratch, all->workspace), "use memory", &p->shape);
    args[count] = (dnnl_exec_arg_t){ DNNL_ARG_SCRATCHPAD, call->scratch };
    check(dnnl_primitive_execute(call->primitive, all->stream, count + 1, args), "run", &p->shape);
}

/* The same with copies; the operand that is not split is converted with the first chunk. */
static void execute_copied(struct RtProducts *all, const Product *p, const Call *call, const RtProductShape *s,
                           char *const operand[], bool is_first)
{
    const int unsplit = p->by_rows ? B : A;
    const RtProductShape whole = chunk_of(p, p->chunk);
    char *used[OPERANDS], *at = all->workspace + p->scratch_bytes;
    for (int i = 0; i < operand_count(s); i++) {
        used[i] = is_copied(p, i) ? at : operand[i];
        at += copy_bytes(p, &whole, i);
        if (is_copied(p, i) && (i == C ? s->accumulate : i != unsplit || is_first))
            convert(p, matrix_of(p, s, i), operand[i], used[i], false);
    }
    execute(all, p, call, used);
    if (is_copied(p, C))
        convert(p, matrix_of(p, s, C), operand[C], used[C], true);
}

static void run_matrices(struct RtProducts *all, const Product *p, char *const start[])
{
    const RtProductShape *s = &p->shape;
    const int64_t size = split_size(p);
    for (int64_t at = 0; at < size; at += p->chunk) {
        const bool is_last = size - at < p->chunk;
        const RtProductShape chunk = chunk_of(p, is_last ? size - at : p->chunk);
        const Call *call = is_last ? &p->last : &p->whole;
        char *const operand[OPERANDS] = {
            start[A] + (p->by_rows ? at * s->a.row : 0) * type_bytes(s->a.type),
            start[B] + (p->by_rows ? 0 : at * s->b.column) * type_bytes(s->b.type),
            start[C] + at * (p->by_rows ? s->c.row : 1) * type_bytes(s->c.type),
            s->has_bias ? start[BIAS] + (p->by_rows == p->swapped ? at : 0) * type_bytes(s->c.type) : NULL,
        };
        if (p->converted || p->apart || p->spaced)
            execute_copied(all, p, call, &chunk, operand, at == 0);
        else
            execute(all, p, call, operand);
    }
}

static void need_workspace(struct RtProducts *all)
{
    if (all->workspace || all->workspace_bytes == 0)
        return;
    all->workspace = aligned_alloc(ALIGNMENT, (size_t)round_up(all->workspace_bytes));
    if (!all->workspace)
        rt_fail("out of memory: the products need a workspace of %s", rt_bytes_text((double)all->workspace_bytes).text);
}

void rt_one_product_run(Rt *rt, const RtOneProduct *p, const void *a, const void *b, const void *bias, void *c)
{
    struct RtProducts *all = rt->products;
    const RtProductShape *s = &p->shape;
    char *left = (char *)(p->swapped ? b : a), *right = (char *)(p->swapped ? a : b), *result = c;
    need_workspace(all);
    for (int64_t turn = 0; turn < p->turns; turn++)
        run_matrices(all, p,
                     (char *const[]){ left + turn * s->a.batch * type_bytes(s->a.type),
                                      right + turn * s->b.batch * type_bytes(s->b.type),
                                      result + turn * s->c.batch * type_bytes(s->c.type), (char *)bias });
}

void rt_product_with(Rt *rt, int id, const void *a, const void *b, const void *bias, void *before, void *c)
{
    const Product *p = &rt->products->product[id];
    if (p->counted)
        rt_counted_product_run(rt, p->counted, a, b, c);
    else
        rt_one_product_run(rt, p, a, b, bias, c);
}

void rt_product(Rt *rt, int id, const void *a, const void *b, void *c) { rt_product_with(rt, id, a, b, NULL, NULL, c); }

int64_t rt_libraries_workspace_bytes(const Rt *rt) { return rt->products ? rt->products->workspace_bytes : 0; }

/* oneDNN chooses when a product is created. */
void rt_libraries_choose(Rt *rt) {}

static void destroy_product(Product *p)
{
    if (p->counted)
        rt_counted_product_free(p->counted);
    destroy_call(&p->whole);
    destroy_call(&p->last);
}

void rt_one_product_free(RtOneProduct *p)
{
    destroy_product(p);
    free(p);
}

void rt_products_free(Rt *rt)
{
    struct RtProducts *all = rt->products;
    if (!all)
        return;
    for (int i = 0; i < all->count; i++)
        destroy_product(&all->product[i]);
    dnnl_stream_destroy(all->stream);
    dnnl_engine_destroy(all->engine);
    free(all->workspace);
    free(all->product);
    free(all);
    rt->products = NULL;
}
