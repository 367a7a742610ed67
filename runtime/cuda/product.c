/* product.c -- products of matrices through cuBLASLt: sums in f32, and no TF32 for f32 operands.
 *
 * cuBLASLt is column-major.  A result with contiguous rows is the transposed one in column-major order, so C = A B is
 * computed as C' = B' A'.  The best of its kernels is queried once for each product and alignment of its operands,
 * unless tune.c has chosen one.
 *
 * Products of numbers of 8 bits: eight_bits.c.  Bias, activation and slope are cuBLASLt's epilogue if its documentation
 * allows them and it finds a kernel for them; else a kernel of the program computes them after a plain product. Counted
 * products are kernels of the program. */
#include "product.h"
#include "mesh/slots.h"

#include <stdlib.h>
#include <string.h>

#define NAME(function) #function,

/* --- Start and end -------------------------------------------------------------------------- */

static _Noreturn void refuse(const struct RtGpuProducts *all, const RtProductShape *s, const char *what, int status)
{
    static const char *const types[] = { "f32", "bf16", "f16", "i32", "bool" };
    rt_fail("cuBLASLt cannot %s %s [%lld, %lld] times %s [%lld, %lld] to %s, %lld times: %s", what, types[s->a.type],
            (long long)s->m, (long long)s->k, types[s->b.type], (long long)s->k, (long long)s->n, types[s->c.type],
            (long long)s->batch,
            status ? all->cublasLtGetStatusString((cublasStatus_t)status) : "it has no kernel for it");
}

static void check(const struct RtGpuProducts *all, const RtProductShape *s, const char *what, cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        refuse(all, s, what, (int)status);
}

void rt_gpu_products_open(Rt *rt)
{
    static const char *const names[] = { FUNCTIONS(NAME) };
    struct RtGpuProducts *all = rt->gpu->products = rt_allocate(1, sizeof *all);
    char *file = rt_text("libcublasLt.so.%d", CUDART_VERSION / 1000);
    rt_library_load("cuBLASLt", file, sizeof names / sizeof *names, names, all->at);
    free(file);
    cublasStatus_t status = all->cublasLtCreate(&all->handle);
    if (status != CUBLAS_STATUS_SUCCESS)
        rt_fail("%s: cuBLASLt cannot start: %s", rt->gpu->name, all->cublasLtGetStatusString(status));
}

void rt_products_free(Rt *rt)
{
    struct RtGpuProducts *all = rt->gpu->products;
    for (int i = 0; i < all->count; i++) {
        Product *p = &all->product[i];
        for (int k = 0; k < OPERANDS && p->plain.description; k++)
            all->cublasLtMatrixLayoutDestroy(p->layout[k]);
        if (p->plain.description)
            all->cublasLtMatmulDescDestroy(p->plain.description);
        if (p->with.description)
            all->cublasLtMatmulDescDestroy(p->with.description);
        rt_eight_free(all, p);
    }
    all->cublasLtDestroy(all->handle);
    free(all->product);
    free(all);
    rt->gpu->products = NULL;
}

/* --- Description ---------------------------------------------------------------------------- */

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Are columns contiguous?  If both strides are 1, it is a matrix of one row or one column. */
static bool is_by_columns(int64_t columns, int64_t row, int64_t column)
{
    return row == 1 && (column != 1 || columns == 1);
}

/* rows x columns with these strides, of which one is 1; or, if `turned`, the transposed matrix. */
static Matrix matrix_of(RtType type, int64_t rows, int64_t columns, int64_t row, int64_t column, int64_t batch,
                        bool turned)
{
    bool by_columns = is_by_columns(columns, row, column);
    Matrix m = { .type = type, .batch = batch, .transposed = by_columns == turned };
    m.rows = by_columns ? rows : columns;
    m.columns = by_columns ? columns : rows;
    m.leading = most(by_columns ? column : row, m.rows);
    return m;
}

static void describe_operands(const Product *p, Matrix operand[OPERANDS])
{
    const RtProductShape *s = &p->shape;
    Matrix a = matrix_of(s->a.type, s->m, s->k, s->a.row, s->a.column, s->a.batch, p->swapped);
    Matrix b = matrix_of(s->b.type, s->k, s->n, s->b.row, s->b.column, s->b.batch, p->swapped);
    operand[A] = p->swapped ? b : a;
    operand[B] = p->swapped ? a : b;
    operand[C] = matrix_of(s->c.type, s->m, s->n, s->c.row, s->c.column, s->c.batch, p->swapped);
}

static cudaDataType type_of(RtType type)
{
    return type == RT_BF16 ? CUDA_R_16BF : type == RT_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void make_layout(const struct RtGpuProducts *all, Product *p, int operand, const Matrix *m)
{
    const RtProductShape *s = &p->shape;
    cublasLtMatrixLayout_t *layout = &p->layout[operand];
    int32_t batch = (int32_t)s->batch;
    check(
        all, s, "describe",
        all->cublasLtMatrixLayoutCreate(layout, type_of(m->type), (uint64_t)m->rows, (uint64_t)m->columns, m->leading));
    check(all, s, "describe",
          all->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    check(all, s, "describe",
          all->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->batch,
                                                sizeof m->batch));
}

static Product *new_product(struct RtGpuProducts *all, int id)
{
    if (id >= all->count) {
        Product *grown = rt_allocate(id + 1, sizeof *grown);
        if (all->count)
            memcpy(grown, all->product, (size_t)all->count * sizeof *grown);
        free(all->product);
        all->product = grown;
        all->count = id + 1;
    }
    return &all->product[id];
}

/* --- Epilogues ------------------------------------------------------------------------------ */

static bool has_epilogue(const RtProductShape *s) { return s->has_bias || s->activation || s->sums; }

static bool has_slope(const RtProductShape *s) { return s->activation == RT_GELU_TANH_SLOPE; }

/* The limits in cublasLt.h: a bias is along cuBLASLt's rows, which are C's columns; the operand of an activation is
 * written or read only for gelu, with a column pitch that is a multiple of 8 elements. */
static bool may_have_epilogue(const Product *p, const Matrix *c)
{
    const RtProductShape *s = &p->shape;
    bool fits = c->leading % 8 == 0 && c->batch % 8 == 0, may_keep = s->activation == RT_GELU_TANH && fits;
    return s->sums || (has_epilogue(s) && p->swapped && (!s->keeps_before || may_keep) && (!has_slope(s) || fits));
}

bool rt_product_set(const struct RtGpuProducts *all, const Request *request, cublasLtMatmulDescAttributes_t attribute,
                    const void *value, size_t bytes)
{
    return all->cublasLtMatmulDescSetAttribute(request->description, attribute, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static void forget(const struct RtGpuProducts *all, Request *request)
{
    all->cublasLtMatmulDescDestroy(request->description);
    request->description = NULL;
}

/* False if this version of cuBLASLt does not support it. */
static bool describe_epilogue(const struct RtGpuProducts *all, const Product *p, const Matrix *c)
{
    static const uint32_t function[] = { [RT_RELU] = CUBLASLT_EPILOGUE_RELU,
                                         [RT_GELU_TANH] = CUBLASLT_EPILOGUE_GELU,
                                         [RT_GELU_TANH_SLOPE] = CUBLASLT_EPILOGUE_DGELU };
    const RtProductShape *s = &p->shape;
    uint32_t epilogue = (s->activation ? function[s->activation] : 0) | (s->has_bias ? CUBLASLT_EPILOGUE_BIAS : 0) |
                        (s->keeps_before ? CUBLASLT_EPILOGUE_GELU_AUX : 0);
    if (s->sums) /* it names its own operands */
        epilogue = (s->sums == RT_SUMS_A) != p->swapped ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
    int32_t type = type_of(s->c.type);
    bool known = rt_product_set(all, &p->with, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (s->has_bias || s->sums)
        known &= rt_product_set(all, &p->with, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    if (s->between_sums)
        known &= rt_product_set(all, &p->with, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &s->between_sums,
                                sizeof s->between_sums);
    if (s->keeps_before || has_slope(s))
        known &=
            rt_product_set(all, &p->with, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &type, sizeof type) &&
            rt_product_set(all, &p->with, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &c->leading, sizeof c->leading) &&
            rt_product_set(all, &p->with, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &c->batch, sizeof c->batch);
    return known;
}

/* --- Creation ------------------------------------------------------------------------------- */

static void describe(const struct RtGpuProducts *all, const Product *p, const Matrix operand[OPERANDS],
                     Request *request)
{
    check(all, &p->shape, "describe",
          all->cublasLtMatmulDescCreate(&request->description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    for (int i = A; i <= B; i++) {
        cublasOperation_t operation = operand[i].transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
        check(all, &p->shape, "describe",
              all->cublasLtMatmulDescSetAttribute(request->description,
                                                  i == A ? CUBLASLT_MATMUL_DESC_TRANSA : CUBLASLT_MATMUL_DESC_TRANSB,
                                                  &operation, sizeof operation));
    }
}

void rt_product_create(Rt *rt, int id, RtProductShape shape)
{
    struct RtGpuProducts *all = rt->gpu->products;
    Product *p = new_product(all, id);
    Matrix operand[OPERANDS];
    p->shape = shape;
    if (shape.counted)
        return;
    p->swapped = !is_by_columns(shape.n, shape.c.row, shape.c.column);
    describe_operands(p, operand);
    for (int i = 0; i < OPERANDS; i++)
        make_layout(all, p, i, &operand[i]);
    describe(all, p, operand, &p->plain);
    if (may_have_epilogue(p, &operand[C])) {
        describe(all, p, operand, &p->with);
        if (!describe_epilogue(all, p, &operand[C]))
            forget(all, &p->with);
    }
    rt_eight_create(rt, p);
}

/* --- Running -------------------------------------------------------------------------------- */

/* The number of the largest power of two that divides all addresses: 0 for LEAST_ALIGNMENT. */
static int alignment_of(const Pointers *at)
{
    uintptr_t all = (uintptr_t)at->a | (uintptr_t)at->b | (uintptr_t)at->bias | (uintptr_t)at->to | (uintptr_t)at->at |
                    (uintptr_t)at->before | (uintptr_t)at->sums | (uintptr_t)at->c;
    int number = 0;
    while (number < ALIGNMENTS - 1 && all % ((uintptr_t)LEAST_ALIGNMENT << (number + 1)) == 0)
        number++;
    return number;
}

static cublasLtMatmulPreference_t preference_for(const struct RtGpuProducts *all, const Product *p, int alignment)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                                       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                                       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
    cublasLtMatmulPreference_t preference;
    uint64_t workspace = WORKSPACE;
    uint32_t bytes = (uint32_t)LEAST_ALIGNMENT << alignment;
    check(all, &p->shape, "choose for", all->cublasLtMatmulPreferenceCreate(&preference));
    check(all, &p->shape, "choose for",
          all->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                    sizeof workspace));
    for (int i = 0; i < 4; i++)
        check(all, &p->shape, "choose for",
              all->cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &bytes, sizeof bytes));
    return preference;
}

int rt_product_kernels(const struct RtGpuProducts *all, const Product *p, const Request *request,
                       const cublasLtMatrixLayout_t layout[], int alignment, int most,
                       cublasLtMatmulHeuristicResult_t found[], cublasStatus_t *why)
{
    int count = 0, usable = 0;
    cublasLtMatmulPreference_t preference = preference_for(all, p, alignment);
    cublasStatus_t status = all->cublasLtMatmulAlgoGetHeuristic(all->handle, request->description, layout[A], layout[B],
                                                                layout[C], layout[C], preference, most, found, &count);
    all->cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS) /* of others, says cublasLt.h, nothing else is valid */
            found[usable++] = found[i];
    if (why)
        *why = status == CUBLAS_STATUS_SUCCESS && usable == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
    return usable;
}

/* Queries cuBLASLt once, and keeps the answer. */
static cublasStatus_t find_algorithm(const struct RtGpuProducts *all, const Product *p, Request *request, int alignment)
{
    if (request->was_asked[alignment])
        return request->has_algorithm[alignment] ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    cublasLtMatmulHeuristicResult_t found = { 0 };
    cublasStatus_t status;
    request->was_asked[alignment] = true;
    request->has_algorithm[alignment] =
        rt_product_kernels(all, p, request, p->layout, alignment, 1, &found, &status) > 0;
    request->algorithm[alignment] = found.algo;
    return status;
}

cublasStatus_t rt_product_run(Rt *rt, const Product *p, const Request *request, const Pointers *at,
                              const cublasLtMatmulAlgo_t *algorithm)
{
    const struct RtGpuProducts *all = rt->gpu->products;
    const float one = 1, zero = 0;
    return all->cublasLtMatmul(all->handle, request->description, &one, p->swapped ? at->b : at->a, p->layout[A],
                               p->swapped ? at->a : at->b, p->layout[B], p->shape.accumulate ? &one : &zero,
                               at->to ? at->to : at->c, p->layout[C], at->c, p->layout[C], algorithm,
                               rt->gpu->product_space, WORKSPACE, rt->gpu->compute);
}

static cublasStatus_t multiply(Rt *rt, const Product *p, Request *request, const Pointers *at)
{
    int alignment = alignment_of(at);
    cublasStatus_t status = find_algorithm(rt->gpu->products, p, request, alignment);
    return status == CUBLAS_STATUS_SUCCESS ? rt_product_run(rt, p, request, at, &request->algorithm[alignment])
                                           : status;
}

cublasStatus_t rt_product_plain(Rt *rt, Product *p, const Pointers *at) { return multiply(rt, p, &p->plain, at); }

bool rt_product_point(const struct RtGpuProducts *all, const Product *p, const Pointers *at)
{
    bool known = true;
    const void *vector = at->sums ? at->sums : at->bias;
    if (vector)
        known &= rt_product_set(all, &p->with, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
    const void *beside = at->before ? at->before : at->at;
    if (beside)
        known &= rt_product_set(all, &p->with, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &beside, sizeof beside);
    return known;
}

/* False if cuBLASLt does not support it: then nothing is queued. */
static bool multiply_with(Rt *rt, Product *p, const Pointers *at)
{
    enum { ALIGNMENT_OF_BEFORE = 16 };
    return p->with.description && ((uintptr_t)at->before | (uintptr_t)at->at) % ALIGNMENT_OF_BEFORE == 0 &&
           rt_product_point(rt->gpu->products, p, at) && /* its choice also depends on the alignment of these */
           multiply(rt, p, &p->with, at) == CUBLAS_STATUS_SUCCESS;
}

/* Computes the epilogue of a product that is stored in the activation's operand or in C: operands, then results. */
static void run_unfused_epilogue(Rt *rt, const RtProductShape *s, const Pointers *at)
{
    const void *operands[5];
    int count = 0;
    operands[count++] = s->keeps_before ? at->before : at->c;
    if (s->has_bias)
        operands[count++] = at->bias;
    if (has_slope(s))
        operands[count++] = at->at;
    if (s->keeps_before)
        operands[count++] = at->before;
    operands[count++] = at->c;
    rt_launch(rt, s->unfused, operands);
}

/* Row by row: what is between C's rows is not the product's. */
static void copy_added(Rt *rt, const Product *p, const Pointers *at)
{
    const RtProductShape *s = &p->shape;
    const int64_t bytes = rt_type_bytes(s->c.type), rows = p->swapped ? s->m : s->n;
    const int64_t row = (p->swapped ? s->n : s->m) * bytes,
                  pitch = most((p->swapped ? s->c.row : s->c.column) * bytes, row);
    for (int64_t i = 0; i < s->batch; i++)
        rt_copy_rows(rt, (char *)at->c + i * s->c.batch * bytes, pitch, (const char *)at->to + i * s->c.batch * bytes,
                     pitch, row, rows);
}

/* A kernel of cuBLASLt may add only to what is in C (CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT). */
static cublasStatus_t multiply_plain(Rt *rt, Product *p, const Pointers *at)
{
    const cublasStatus_t status = multiply(rt, p, &p->plain, at);
    if (status == CUBLAS_STATUS_SUCCESS || !at->to)
        return status;
    copy_added(rt, p, at);
    return multiply(rt, p, &p->plain, &(Pointers){ .a = at->a, .b = at->b, .c = at->c });
}

/* Sums first: they may have their scratch where C will be. */
static void run_unfused_sums(Rt *rt, const RtProductShape *s, const Pointers *at)
{
    const bool is_a = s->sums == RT_SUMS_A;
    const int64_t stride = is_a ? s->a.batch * rt_type_bytes(s->a.type) : s->b.batch * rt_type_bytes(s->b.type);
    const int count = (int)s->batch;
    const void *operands[2 * RT_MOST_SUMS + 1];
    for (int i = 0; i < count; i++) {
        const int64_t matrix = s->sums_reverse ? count - 1 - i : i;
        operands[i] = (const char *)(is_a ? at->a : at->b) + matrix * stride;
        operands[count + i] = (const char *)at->sums + matrix * s->between_sums * rt_type_bytes(s->c.type);
    }
    operands[2 * count] = at->scratch;
    rt_launch(rt, s->unfused, operands);
}

/* cuBLASLt's workspace is free: it has the counts. */
static void run_counted(Rt *rt, const RtProductShape *s, const Pointers *at)
{
    const void *const operands[] = { at->a, at->b, at->c, rt->gpu->product_space };
    rt_launch(rt, s->unfused, operands);
}

void rt_product_queue(Rt *rt, Product *p, const Pointers *at)
{
    const RtProductShape *s = &p->shape;
    const bool in_eight = rt_eight_is_used(p, at);
    if (!in_eight && has_epilogue(s) && multiply_with(rt, p, at))
        return;
    if (s->sums)
        run_unfused_sums(rt, s, at);
    const Pointers plain = { .a = at->a, .b = at->b, .to = at->to, .c = s->keeps_before ? at->before : at->c };
    cublasStatus_t status = in_eight ? rt_eight_run(rt, p, &plain) : multiply_plain(rt, p, &plain);
    if (status != CUBLAS_STATUS_SUCCESS)
        refuse(rt->gpu->products, s, "multiply", (int)status);
    if (has_epilogue(s) && !s->sums)
        run_unfused_epilogue(rt, s, at);
}

static void run(Rt *rt, int id, Pointers at)
{
    Product *p = &rt->gpu->products->product[id];
    if (p->shape.counted)
        run_counted(rt, &p->shape, &at);
    else
        rt_product_queue(rt, p, &at);
}

int rt_gpu_products_count(const Rt *rt) { return rt->gpu->products->count; }

void rt_product(Rt *rt, int id, const void *a, const void *b, void *c)
{
    run(rt, id, (Pointers){ .a = a, .b = b, .c = c });
}

void rt_product_with(Rt *rt, int id, const void *a, const void *b, const void *bias, void *before, void *c)
{
    run(rt, id, (Pointers){ .a = a, .b = b, .bias = bias, .before = before, .c = c });
}

void rt_product_added(Rt *rt, int id, const void *a, const void *b, const void *bias, const void *to, void *c)
{
    run(rt, id, (Pointers){ .a = a, .b = b, .bias = bias, .to = to, .c = c });
}

void rt_product_slope(Rt *rt, int id, const void *a, const void *b, const void *at, void *c)
{
    run(rt, id, (Pointers){ .a = a, .b = b, .at = at, .c = c });
}

void rt_product_sums(Rt *rt, int id, const void *a, const void *b, void *sums, void *scratch, void *c)
{
    run(rt, id, (Pointers){ .a = a, .b = b, .sums = sums, .scratch = scratch, .c = c });
}
