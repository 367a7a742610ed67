/* cublaslt.c -- in the place of libcublasLt.so: products by loops, columns one behind the other, sums in f32. */
#include "device.h"

#include "convert.h"

#include <cublasLt.h>
#include <string.h>

typedef struct {
    int32_t transposed[2];
} Description;

typedef struct {
    cudaDataType type;
    int64_t rows, columns, leading, stride;
    int32_t batch;
} Layout;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = calloc(1, 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    *description = calloc(1, sizeof **description);
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    Description *d = (Description *)description;
    cublasOperation_t operation;
    memcpy(&operation, value, sizeof operation);
    d->transposed[attribute == CUBLASLT_MATMUL_DESC_TRANSB] = operation == CUBLAS_OP_T;
    return attribute == CUBLASLT_MATMUL_DESC_TRANSA || attribute == CUBLASLT_MATMUL_DESC_TRANSB
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description)
{
    free(description);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading)
{
    Layout *l = calloc(1, sizeof(cublasLtMatrixLayoutOpaque_t) + sizeof *l);
    *l = (Layout){ type, (int64_t)rows, (int64_t)columns, leading, 0, 1 };
    *layout = (cublasLtMatrixLayout_t)l;
    return leading >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    Layout *l = (Layout *)layout;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof l->batch)
        memcpy(&l->batch, value, bytes);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof l->stride)
        memcpy(&l->stride, value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = calloc(1, sizeof **preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

/* Of cuBLASLt's table of types, sums in f32: both operands alike, and a result of their type or f32. */
static bool has_kernel(const Layout *a, const Layout *b, const Layout *c)
{
    return a->type == b->type && (c->type == a->type || c->type == CUDA_R_32F);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int *count)
{
    memset(found, 0, sizeof *found);
    *count = has_kernel((const Layout *)a, (const Layout *)b, (const Layout *)c);
    return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

const char *cublasLtGetStatusString(cublasStatus_t status) { return "emulated cuBLASLt: not supported"; }

/* --- The product ------------------------------------------------------------------------------------- */

typedef struct {
    Description description;
    Layout layout[3];
    char *operand[3];
    float beta;
} Product;

static int64_t element_bytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

static float load(const Layout *l, const char *at, int64_t i)
{
    float value;
    uint16_t bits;
    if (l->type == CUDA_R_32F) {
        memcpy(&value, at + 4 * i, 4);
        return value;
    }
    memcpy(&bits, at + 2 * i, 2);
    return l->type == CUDA_R_16BF ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
}

static void store(const Layout *l, char *at, int64_t i, float value)
{
    if (l->type == CUDA_R_32F) {
        memcpy(at + 4 * i, &value, 4);
        return;
    }
    uint16_t bits = l->type == CUDA_R_16BF ? rt_bf16_of_float(value) : rt_f16_of_float(value);
    memcpy(at + 2 * i, &bits, 2);
}

/* Element [i, k] of operand 0 or [k, j] of operand 1, after it was transposed: as f32, rows of k. */
static float *lines_of(const Product *p, int operand, const char *at, int64_t lines, int64_t k)
{
    const Layout *l = &p->layout[operand];
    float *values = malloc((size_t)(lines * k + 1) * sizeof *values);
    bool line_is_row = operand == 0 ? !p->description.transposed[0] : p->description.transposed[1];
    for (int64_t line = 0; line < lines; line++)
        for (int64_t i = 0; i < k; i++)
            values[line * k + i] = load(l, at, line_is_row ? line + i * l->leading : i + line * l->leading);
    return values;
}

static void multiply(const Product *p, int64_t turn)
{
    const Layout *c = &p->layout[2];
    char *at[3];
    for (int i = 0; i < 3; i++)
        at[i] = p->operand[i] + turn * p->layout[i].stride * element_bytes(p->layout[i].type);
    int64_t k = p->description.transposed[0] ? p->layout[0].rows : p->layout[0].columns;
    float *a = lines_of(p, 0, at[0], c->rows, k), *b = lines_of(p, 1, at[1], c->columns, k);
    for (int64_t j = 0; j < c->columns; j++)
        for (int64_t i = 0; i < c->rows; i++) {
            float sum = 0;
            for (int64_t q = 0; q < k; q++)
                sum += a[i * k + q] * b[j * k + q];
            if (p->beta != 0)
                sum += p->beta * load(c, at[2], i + j * c->leading);
            store(c, at[2], i + j * c->leading, sum);
        }
    free(a);
    free(b);
}

static bool work_product(void *data)
{
    const Product *p = data;
    for (int64_t turn = 0; turn < p->layout[2].batch; turn++)
        multiply(p, turn);
    return true;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    Product p = { *(Description *)description,
                  { *(Layout *)a_layout, *(Layout *)b_layout, *(Layout *)d_layout },
                  { (char *)(uintptr_t)a, (char *)(uintptr_t)b, d },
                  *(const float *)beta };
    emulated_enqueue(stream, work_product, &p, sizeof p);
    return c == d ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
