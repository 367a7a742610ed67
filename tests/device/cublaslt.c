/* cublaslt.c -- replaces libcublasLt.so: products by loops, column-major, sums in f32.
 *
 * Epilogues are implemented within the limits that cublasLt.h documents; a request outside of them ends the program.
 * With EMULATED_EPILOGUES=none no kernel has one, with EMULATED_EPILOGUES=unknown the library does not know them, with
 * EMULATED_EPILOGUES=late they fail only at run time, with EMULATED_EPILOGUES=wrong they change the sign of what they
 * activate, with EMULATED_EPILOGUES=slopes that of where they take a slope, and with EMULATED_EPILOGUES=sums they say
 * twice the sums of an operand.  With EMULATED_EPILOGUES=inplace kernels add only to what is in their result, and with
 * EMULATED_EPILOGUES=residuals they add what is elsewhere twice.
 *
 * Numbers of 8 bits, e4m3, have a scale for each 128 terms of a row or column
 * (CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F), or one operand has one for each square of 128 x 128
 * (CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F). With EMULATED_SQUARES=none no kernel takes squares, with
 * EMULATED_SQUARES=wrong their scales are those of the next square, with EMULATED_SQUARES=slow they take 100 seconds
 * longer than other products of 8 bits, with EMULATED_SQUARES=fast less by as much. With EMULATED_FP8=none no kernel
 * takes them, with EMULATED_FP8=unknown the library does not know them, with EMULATED_FP8=wrong scales are those of the
 * next row, with EMULATED_FP8=varies a result differs each time, and with EMULATED_FP8=slow they take 1000 seconds
 * longer, by events, with EMULATED_FP8=fast less by as much, with EMULATED_FP8=wide where the result has more than 128
 * rows and columns.
 *
 * EMULATED_KERNELS=N kernels (1) are found for each request, EMULATED_SLOW seconds slower, by events, than
 * number EMULATED_FASTEST (0); each product's is written to EMULATED_CHOICES=FILE, with a word if it is recorded in a
 * graph.
 */
#include "device.h"

#include "convert.h"

#include <cublasLt.h>
#include <math.h>
#include <string.h>
#include <time.h>

typedef struct {
    int32_t transposed[2];
    uint32_t epilogue; /* 0: not said, the same as CUBLASLT_EPILOGUE_DEFAULT */
    int32_t bias_type, aux_type;
    char *bias; /* read; sums of an operand are written */
    char *aux;  /* written; of gelu's gradient only read */
    int64_t bias_stride, aux_leading, aux_stride;
    const float *scales[2]; /* of A and B */
    int32_t scale_mode[2];
} Description;

_Static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t), "it lies where the library's would");

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

/* A variable of the environment, read once: it is asked for at each element. */
static bool epilogues_are(const char *how)
{
    static const char *said;
    if (!said)
        said = getenv("EMULATED_EPILOGUES") ? getenv("EMULATED_EPILOGUES") : "";
    return strcmp(said, how) == 0;
}

static bool squares_are(const char *how)
{
    static const char *said;
    if (!said)
        said = getenv("EMULATED_SQUARES") ? getenv("EMULATED_SQUARES") : "";
    return strcmp(said, how) == 0;
}

static bool has_squares(const Description *d, int operand)
{
    return d->scale_mode[operand] == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

static bool fp8_is(const char *how)
{
    static const char *said;
    if (!said)
        said = getenv("EMULATED_FP8") ? getenv("EMULATED_FP8") : "";
    return strcmp(said, how) == 0;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    Description *d = (Description *)description;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        void *to;
        size_t bytes;
    } attributes[] = {
        { CUBLASLT_MATMUL_DESC_TRANSA, &d->transposed[0], sizeof d->transposed[0] },
        { CUBLASLT_MATMUL_DESC_TRANSB, &d->transposed[1], sizeof d->transposed[1] },
        { CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue, sizeof d->epilogue },
        { CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d->bias, sizeof d->bias },
        { CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &d->bias_type, sizeof d->bias_type },
        { CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &d->bias_stride, sizeof d->bias_stride },
        { CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &d->aux, sizeof d->aux },
        { CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &d->aux_type, sizeof d->aux_type },
        { CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &d->aux_leading, sizeof d->aux_leading },
        { CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &d->aux_stride, sizeof d->aux_stride },
        { CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &d->scales[0], sizeof d->scales[0] },
        { CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &d->scales[1], sizeof d->scales[1] },
        { CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &d->scale_mode[0], sizeof d->scale_mode[0] },
        { CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &d->scale_mode[1], sizeof d->scale_mode[1] },
    };
    const bool is_scale_mode =
        attribute == CUBLASLT_MATMUL_DESC_A_SCALE_MODE || attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE;
    if (is_scale_mode && fp8_is("unknown"))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool is_known = attribute <= CUBLASLT_MATMUL_DESC_TRANSB || !epilogues_are("unknown");
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && is_known; i++)
        if (attributes[i].attribute == attribute && attributes[i].bytes == bytes) {
            memcpy(attributes[i].to, value, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_INVALID_VALUE;
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

static int64_t element_bytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2; }

/* --- Available kernels ----------------------------------------------------------------------------------- */

static bool has_bias(const Description *d) { return d->epilogue & CUBLASLT_EPILOGUE_BIAS; }
static bool has_aux(const Description *d) { return d->epilogue & 128; }
static bool has_sums(const Description *d)
{
    return d->epilogue == CUBLASLT_EPILOGUE_BGRADA || d->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

static void must(bool holds, const char *limit)
{
    if (holds)
        return;
    fprintf(stderr, "emulated cuBLASLt: %s\n", limit);
    abort();
}

/* What its documentation asks of an epilogue; the library itself may read and write anywhere. */
static void check_epilogue(const Description *d, const Layout *c)
{
    if (d->epilogue <= CUBLASLT_EPILOGUE_DEFAULT)
        return;
    const uint32_t dgelu = CUBLASLT_EPILOGUE_DGELU & ~128u, function = d->epilogue & ~(CUBLASLT_EPILOGUE_BIAS | 128u);
    must(function == 0 || function == CUBLASLT_EPILOGUE_RELU || function == CUBLASLT_EPILOGUE_GELU ||
             d->epilogue == CUBLASLT_EPILOGUE_DGELU || has_sums(d),
         "no such epilogue is emulated");
    must(!(has_bias(d) || has_sums(d)) || (d->bias && d->bias_type == (int32_t)c->type),
         "a bias has a place, and the result's type");
    must(!has_sums(d) || c->batch == 1 ||
             d->bias_stride >= (d->epilogue == CUBLASLT_EPILOGUE_BGRADA ? c->rows : c->columns),
         "the sums of each matrix have a place");
    if (!has_aux(d))
        return;
    must(function == CUBLASLT_EPILOGUE_GELU || function == dgelu,
         "beside relu's result a mask of bits is written, not its operand");
    must(d->aux_leading % 8 == 0 && d->aux_leading >= c->rows, "gelu's operand has columns a multiple of 8 apart");
    must(d->aux_stride % 8 == 0, "gelu's operand has matrices a multiple of 8 apart");
    must(d->aux && (uintptr_t)d->aux % 16 == 0, "gelu's operand is aligned to 16 bytes");
    must(d->aux_type == (int32_t)c->type, "gelu's operand has the result's type");
}

static int64_t bytes_of(const Layout *l)
{
    return ((l->batch - 1) * l->stride + (l->columns - 1) * l->leading + l->rows) * element_bytes(l->type);
}

/* What its documentation asks of C and D: they are one matrix, or lie apart. */
static void check_added(const Layout *c, const char *added, const Layout *d, const char *made)
{
    must(memcmp(c, d, sizeof *c) == 0, "no layout of C but D's is emulated");
    must(added == made || added + bytes_of(c) <= made || made + bytes_of(d) <= added, "C and D overlap");
}

/* What its documentation asks of numbers of 8 bits. */
static void check_eight_bits(const Description *d, const Layout *const layout[3])
{
    must(d->transposed[0] && !d->transposed[1], "numbers of 8 bits are in columns of terms: A is transposed, B is not");
    must(d->epilogue <= CUBLASLT_EPILOGUE_DEFAULT, "no epilogue of numbers of 8 bits is emulated");
    for (int i = 0; i < 3; i++)
        must(layout[i]->rows % 16 == 0 && layout[i]->columns % 16 == 0 &&
                 layout[i]->leading * element_bytes(layout[i]->type) % 16 == 0 && layout[i]->batch == 1,
             "of numbers of 8 bits sizes are multiples of 16, and so are bytes between columns");
    for (int i = 0; i < 2; i++)
        must((d->scale_mode[i] == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || has_squares(d, i)) && d->scales[i] &&
                 (uintptr_t)d->scales[i] % 16 == 0,
             "the scales of blocks have a place");
    must(!has_squares(d, 0) || !has_squares(d, 1), "one operand at most has squares");
}

/* Of cuBLASLt's table of types, sums in f32: both operands alike, and a result of their type or f32; of 8 bits a
 * result of bf16. */
static bool has_kernel(const Description *d, const Layout *a, const Layout *b, const Layout *c)
{
    if (a->type != CUDA_R_8F_E4M3)
        return a->type == b->type && (c->type == a->type || c->type == CUDA_R_32F);
    check_eight_bits(d, (const Layout *const[]){ a, b, c });
    const bool no_squares = squares_are("none") && (has_squares(d, 0) || has_squares(d, 1));
    return b->type == CUDA_R_8F_E4M3 && (c->type == CUDA_R_16BF || c->type == CUDA_R_32F) && !fp8_is("none") &&
           !no_squares;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int *count)
{
    const Description *asked = (const Description *)description;
    const int kernels = (int)emulated_number("EMULATED_KERNELS", 1);
    memset(found, 0, (size_t)wanted * sizeof *found);
    check_epilogue(asked, (const Layout *)c);
    *count = has_kernel(asked, (const Layout *)a, (const Layout *)b, (const Layout *)c) ? kernels : 0;
    if (asked->epilogue > CUBLASLT_EPILOGUE_DEFAULT && epilogues_are("none"))
        *count = 0;
    *count = *count < wanted ? *count : wanted;
    const int unusable = *count && *count < wanted; /* one, that is the first */
    for (int i = 0; i < *count; i++)
        found[i + unusable].algo.data[0] = (uint64_t)i;
    if (unusable)
        found[0] =
            (cublasLtMatmulHeuristicResult_t){ .state = CUBLAS_STATUS_NOT_SUPPORTED, .algo.data = { UINT64_MAX } };
    *count += unusable;
    return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

size_t cublasLtGetVersion(void) { return (size_t)emulated_number("EMULATED_CUBLASLT", 130000); }

const char *cublasLtGetStatusString(cublasStatus_t status) { return "emulated cuBLASLt: not supported"; }

/* --- The product ------------------------------------------------------------------------------------- */

typedef struct {
    Description description;
    Layout layout[3]; /* of A, B and D; C's is D's */
    char *operand[3];
    const char *added; /* C */
    float beta;
    int64_t kernel;
} Product;

static float float_of_e4m3(uint8_t bits)
{
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const float size = exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
    return (bits & 0x7F) == 0x7F ? NAN : bits & 0x80 ? -size : size;
}

static float load(const Layout *l, const char *at, int64_t i)
{
    float value;
    uint16_t bits;
    if (l->type == CUDA_R_32F) {
        memcpy(&value, at + 4 * i, 4);
        return value;
    }
    if (l->type == CUDA_R_8F_E4M3)
        return float_of_e4m3((uint8_t)at[i]);
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

/* Scales are [block, line], the lines of a block next to each other; of squares [square, block], the blocks of 128
 * lines next to each other, with rows of a multiple of four. */
static float scale_of(const Product *p, int operand, int64_t line, int64_t lines, int64_t terms, int64_t term)
{
    if (p->layout[operand].type != CUDA_R_8F_E4M3)
        return 1;
    if (has_squares(&p->description, operand)) {
        const int64_t blocks = (terms + 127) / 128, squares = (lines + 127) / 128, row = (blocks + 3) / 4 * 4,
                      i = (line / 128 * blocks + term / 128 + squares_are("wrong")) % (squares * blocks);
        return p->description.scales[operand][i / blocks * row + i % blocks];
    }
    return p->description.scales[operand][term / 128 * lines + (line + fp8_is("wrong")) % lines];
}

/* Element [i, k] of operand 0 or [k, j] of operand 1, after it was transposed: as f32, rows of k; of operand 0 columns,
 * so that the loop over i is one over vectors. */
static float *lines_of(const Product *p, int operand, const char *at, int64_t lines, int64_t k)
{
    const Layout *l = &p->layout[operand];
    float *values = malloc((size_t)(lines * k + 1) * sizeof *values);
    bool line_is_row = operand == 0 ? !p->description.transposed[0] : p->description.transposed[1];
    for (int64_t line = 0; line < lines; line++)
        for (int64_t i = 0; i < k; i++)
            values[operand ? line * k + i : i * lines + line] =
                load(l, at, line_is_row ? line + i * l->leading : i + line * l->leading) *
                scale_of(p, operand, line, lines, k, i);
    return values;
}

static float activated(const Description *d, float x)
{
    x = epilogues_are("wrong") ? -x : x;
    if (d->epilogue & CUBLASLT_EPILOGUE_RELU)
        return fmaxf(x, 0);
    return d->epilogue & CUBLASLT_EPILOGUE_GELU ? 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)))
                                                : x;
}

static float gelu_slope(float x)
{
    x = epilogues_are("slopes") ? -x : x;
    const float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 0.134145f * x * x);
}

/* Sums over k, one for each row of the result, of A, or one for each column, of B. */
static void sum_operand(const Product *p, int64_t turn, int operand, const float *lines, int64_t count, int64_t k)
{
    for (int64_t line = 0; line < count; line++) {
        float sum = 0;
        for (int64_t q = 0; q < k; q++)
            sum += lines[operand ? line * k + q : q * count + line];
        store(&p->layout[2], p->description.bias, turn * p->description.bias_stride + line,
              epilogues_are("sums") ? 2 * sum : sum);
    }
}

static void multiply(const Product *p, int64_t turn)
{
    const Description *d = &p->description;
    const Layout *c = &p->layout[2];
    const char *added = p->added + turn * c->stride * element_bytes(c->type);
    const bool is_apart = p->added != p->operand[2];
    char *at[3], *aux = has_aux(d) ? d->aux + turn * d->aux_stride * element_bytes(c->type) : NULL;
    for (int i = 0; i < 3; i++)
        at[i] = p->operand[i] + turn * p->layout[i].stride * element_bytes(p->layout[i].type);
    int64_t k = p->description.transposed[0] ? p->layout[0].rows : p->layout[0].columns;
    float *a = lines_of(p, 0, at[0], c->rows, k), *b = lines_of(p, 1, at[1], c->columns, k);
    float *sums = malloc((size_t)(c->rows + 1) * sizeof *sums);
    for (int64_t j = 0; j < c->columns; j++) {
        memset(sums, 0, (size_t)c->rows * sizeof *sums);
        for (int64_t q = 0; q < k; q++)
            for (int64_t i = 0; i < c->rows; i++)
                sums[i] += a[q * c->rows + i] * b[j * k + q];
        for (int64_t i = 0; i < c->rows; i++) {
            float sum = sums[i];
            if (p->beta != 0)
                sum += p->beta * load(c, added, i + j * c->leading) * (is_apart && epilogues_are("residuals") ? 2 : 1);
            if (has_bias(d))
                sum += load(c, d->bias, i);
            if (d->epilogue == CUBLASLT_EPILOGUE_DGELU)
                sum *= gelu_slope(load(c, aux, i + j * d->aux_leading));
            else if (aux)
                store(c, aux, i + j * d->aux_leading, sum);
            sum = activated(d, sum);
            store(c, at[2], i + j * c->leading, sum);
        }
    }
    if (d->epilogue == CUBLASLT_EPILOGUE_BGRADA)
        sum_operand(p, turn, 0, a, c->rows, k);
    if (d->epilogue == CUBLASLT_EPILOGUE_BGRADB)
        sum_operand(p, turn, 1, b, c->columns, k);
    free(sums);
    free(a);
    free(b);
}

static void sleep_for(int64_t milliseconds)
{
    nanosleep(&(struct timespec){ milliseconds / 1000, milliseconds % 1000 * 1000000 }, NULL);
}

/* As if a result depended on the order in which sums are added. */
static void vary(const Product *p)
{
    static int runs;
    if (p->layout[0].type == CUDA_R_8F_E4M3 && fp8_is("varies"))
        store(&p->layout[2], p->operand[2], 0, load(&p->layout[2], p->operand[2], 0) * (runs++ % 2 ? 1.01f : 0.99f));
}

static bool work_product(void *data)
{
    const Product *p = data;
    const bool in_eight = p->layout[0].type == CUDA_R_8F_E4M3,
               by_squares = has_squares(&p->description, 0) || has_squares(&p->description, 1);
    const bool is_wide = p->layout[2].rows > 128 && p->layout[2].columns > 128;
    if (in_eight ? fp8_is("slow") : fp8_is("fast") || (fp8_is("wide") && is_wide))
        emulated_take_longer(1000);
    if (in_eight && (by_squares ? squares_are("slow") : squares_are("fast")))
        emulated_take_longer(100);
    if (p->kernel != emulated_number("EMULATED_FASTEST", 0))
        emulated_take_longer((double)emulated_number("EMULATED_SLOW", 0));
    for (int64_t turn = 0; turn < p->layout[2].batch; turn++)
        multiply(p, turn);
    vary(p);
    return true;
}

/* When a product is not the one before, the kernel is taken for a new one. */
static void load_kernel(const void *product)
{
    static const void *last;
    const int64_t milliseconds = product == last ? 0 : emulated_number("EMULATED_LOAD", 0);
    if (product != last)
        emulated_load();
    last = product;
    sleep_for(milliseconds);
}

static void note_choice(const Product *p, cudaStream_t stream)
{
    const char *path = getenv("EMULATED_CHOICES");
    FILE *file = path ? fopen(path, "a") : NULL;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &status);
    if (file)
        fprintf(file, "%d%s\n", (int)p->kernel, status == cudaStreamCaptureStatusNone ? "" : " recorded");
    if (file)
        fclose(file);
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
                  c,
                  *(const float *)beta,
                  (int64_t)algorithm->data[0] };
    check_added((Layout *)c_layout, c, &p.layout[2], d);
    if (p.description.epilogue > CUBLASLT_EPILOGUE_DEFAULT && epilogues_are("late"))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (c != d && epilogues_are("inplace"))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    check_epilogue(&p.description, &p.layout[2]);
    must(algorithm->data[0] != UINT64_MAX, "a result whose state is not success has no kernel");
    load_kernel(description);
    note_choice(&p, stream);
    emulated_enqueue(stream, work_product, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}
