/* probe.c -- what cuBLASLt makes of the products of GPT-2 and Llama, and which paddings, epilogues and scales of 8 bits
 * pay.
 *
 *   probe [TOKENS]      of a micro-batch (32768); a Markdown table to stdout
 *
 * A row is one product in bf16, or e4m3, with sums in f32: the kernel that the library names first, and the fastest of
 * those it names, which trainers take.  Compare neighbours: padded or not, with an epilogue or without, one product or
 * three, a scale for each tensor, row, 128 terms of a row, or square of 128 by 128. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { KERNELS = 16, TURNS = 7, WORKSPACE = 32 << 20, BIAS_BYTES = 1 << 20, SCALE_BYTES = 16 << 20 };
enum { HAS_OPERAND = CUBLASLT_EPILOGUE_GELU_AUX & ~CUBLASLT_EPILOGUE_GELU }; /* gelu's, also of its gradient */

/* d[m, n] = a[m, k] b[k, n] + beta d, column-major; operands may be stored transposed. */
typedef struct {
    const char *name;
    int64_t m, n, k;
    bool turned_a, turned_b;
    int64_t pitch_a, pitch_b, pitch_d;
    cudaDataType type; /* of d */
    cublasLtEpilogue_t epilogue;
    float beta;
    int scales; /* 0: in 16 bits; else in 8: of b, and of a, 16 times */
} Product;

/* Scales of 8 bits, as cublasLtMatmulMatrixScale_t plus 1. */
enum {
    TENSOR = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F + 1,
    ROWS = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F + 1,
    TERMS = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F + 1,
    SQUARES = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F + 1
};
#define SCALED(of_a, of_b) (16 * (of_a) + (of_b))

typedef struct {
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, d;
} Request;

static cublasLtHandle_t library;
static cudaStream_t stream;
static void *a_memory, *b_memory, *d_memory, *operand_memory, *bias, *workspace, *scales, *eights;

#define CHECK(call) check((int)(call), #call, __LINE__)
static void check(int status, const char *call, int line)
{
    if (status == 0)
        return;
    fprintf(stderr, "probe.c:%d: %s: error %d\n", line, call, status);
    exit(1);
}

/* --- One product ---------------------------------------------------------------------------------- */

static void set(Request *r, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    CHECK(cublasLtMatmulDescSetAttribute(r->description, attribute, value, bytes));
}

static Request request_of(const Product *p)
{
    Request r;
    cublasOperation_t a = p->turned_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->turned_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t type = p->type;
    CHECK(cublasLtMatmulDescCreate(&r.description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(&r, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
    set(&r, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
    if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        set(&r, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue);
    if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->epilogue != CUBLASLT_EPILOGUE_DGELU) {
        set(&r, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
        set(&r, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    }
    if (p->epilogue & HAS_OPERAND) {
        set(&r, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &operand_memory, sizeof operand_memory);
        set(&r, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->pitch_d, sizeof p->pitch_d);
        set(&r, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &type, sizeof type);
    }
    if (p->scales) {
        const int32_t of_a = p->scales / 16 - 1, of_b = p->scales % 16 - 1;
        set(&r, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &of_a, sizeof of_a);
        set(&r, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &of_b, sizeof of_b);
        set(&r, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scales, sizeof scales);
        set(&r, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scales, sizeof scales);
    }
    const cudaDataType type_ab = p->scales ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    int64_t rows = p->turned_a ? p->k : p->m, columns = p->turned_a ? p->m : p->k;
    CHECK(cublasLtMatrixLayoutCreate(&r.a, type_ab, (uint64_t)rows, (uint64_t)columns, p->pitch_a));
    rows = p->turned_b ? p->n : p->k, columns = p->turned_b ? p->k : p->n;
    CHECK(cublasLtMatrixLayoutCreate(&r.b, type_ab, (uint64_t)rows, (uint64_t)columns, p->pitch_b));
    CHECK(cublasLtMatrixLayoutCreate(&r.d, p->type, (uint64_t)p->m, (uint64_t)p->n, p->pitch_d));
    return r;
}

static void drop(Request *r)
{
    cublasLtMatrixLayoutDestroy(r->a);
    cublasLtMatrixLayoutDestroy(r->b);
    cublasLtMatrixLayoutDestroy(r->d);
    cublasLtMatmulDescDestroy(r->description);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over some turns, in seconds, after a first one; a turn takes about 2 ms.  0: the kernel fails. */
static double time_of(const Product *p, const Request *r, const cublasLtMatmulAlgo_t *kernel)
{
    const float one = 1;
    const double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    const int times = (int)(2e-3 / (flops / 500e12)) + 1;
    double seconds[TURNS];
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int turn = -1; turn < TURNS && status == CUBLAS_STATUS_SUCCESS; turn++) {
        float milliseconds;
        CHECK(cudaEventRecord(begin, stream));
        for (int i = 0; i < times && status == CUBLAS_STATUS_SUCCESS; i++)
            status = cublasLtMatmul(library, r->description, &one, p->scales ? eights : a_memory, r->a,
                                    p->scales ? eights : b_memory, r->b, &p->beta, d_memory, r->d, d_memory, r->d,
                                    kernel, workspace, WORKSPACE, stream);
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (turn >= 0)
            seconds[turn] = 1e-3 * (double)milliseconds / times;
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    qsort(seconds, TURNS, sizeof *seconds, by_size);
    return status == CUBLAS_STATUS_SUCCESS ? seconds[TURNS / 2] : 0;
}

static int find_kernels(const Request *r, cublasLtMatmulHeuristicResult_t found[KERNELS])
{
    cublasLtMatmulPreference_t preference;
    const uint64_t space = WORKSPACE;
    int count = 0;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space,
                                               sizeof space));
    if (cublasLtMatmulAlgoGetHeuristic(library, r->description, r->a, r->b, r->d, r->d, preference, KERNELS, found,
                                       &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    cublasLtMatmulPreferenceDestroy(preference);
    return count;
}

static void probe(const Product *p)
{
    cublasLtMatmulHeuristicResult_t found[KERNELS];
    Request r = request_of(p);
    const double tera = 2e-12 * (double)p->m * (double)p->n * (double)p->k;
    double first = 0, best = 0;
    int count = find_kernels(&r, found), fastest = 0;
    for (int i = 0; i < count; i++) {
        double seconds = time_of(p, &r, &found[i].algo);
        first = i == 0 ? seconds : first;
        if (seconds > 0 && (best == 0 || seconds < best))
            best = seconds, fastest = i + 1;
    }
    printf("| %s | %lld x %lld x %lld | ", p->name, (long long)p->m, (long long)p->n, (long long)p->k);
    if (best > 0)
        printf("%.1f | %.0f | %.1f (%d of %d) | %.0f |\n", first * 1e6, first > 0 ? tera / first : 0, best * 1e6,
               fastest, count, tera / best);
    else
        printf("no kernel | | | |\n");
    fflush(stdout);
    drop(&r);
}

/* --- Memory --------------------------------------------------------------------------------------- */

/* Random bits where `random_bits` has ones: products of zeros need less power and are therefore faster. */
static void *filled(size_t bytes, uint16_t sure_bits, uint16_t random_bits)
{
    enum { SOME = 1 << 20 };
    static uint16_t some[SOME];
    static uint32_t random = 1;
    void *memory;
    CHECK(cudaMalloc(&memory, bytes));
    for (int i = 0; i < SOME; i++) {
        random = random * 1664525u + 1013904223u; /* D. E. Knuth's */
        some[i] = (uint16_t)(sure_bits | (random >> 16 & random_bits));
    }
    for (size_t done = 0; done < bytes; done += sizeof some)
        CHECK(cudaMemcpyAsync((char *)memory + done, some, bytes - done < sizeof some ? bytes - done : sizeof some,
                              cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    return memory;
}

static size_t larger(size_t most, int64_t elements, size_t bytes)
{
    return (size_t)elements * bytes > most ? (size_t)elements * bytes : most;
}

static void allocate(const Product *products, int count)
{
    size_t a = 0, b = 0, d = 0;
    for (const Product *p = products; p < products + count; p++) {
        a = larger(a, p->pitch_a * (p->turned_a ? p->m : p->k), 2);
        b = larger(b, p->pitch_b * (p->turned_b ? p->k : p->n), 2);
        d = larger(d, p->pitch_d * p->n, p->type == CUDA_R_32F ? 4 : 2);
    }
    const uint16_t half = 0x3F00, varied = 0x807F; /* bf16; as f32, too, about 1 */
    a_memory = filled(a, half, varied), b_memory = filled(b, half, varied), d_memory = filled(d, half, varied);
    operand_memory = filled(d, half, varied), bias = filled(BIAS_BYTES, half, varied);
    workspace = filled(WORKSPACE, half, varied), scales = filled(SCALE_BYTES, half, varied);
    eights = filled(larger(a, (int64_t)b, 1), 0x3030, 0x8F8F);
}

int main(int argc, char **argv)
{
    const int64_t T = argc > 1 ? atoll(argv[1]) : 32768, E = 768, F = 3072, V = 50257, P = 50304;
    const cudaDataType H = CUDA_R_16BF, S = CUDA_R_32F;
    const cublasLtEpilogue_t NONE = CUBLASLT_EPILOGUE_DEFAULT, BIAS = CUBLASLT_EPILOGUE_BIAS,
                             GELU = CUBLASLT_EPILOGUE_GELU_BIAS, KEPT = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                             DGELU = CUBLASLT_EPILOGUE_DGELU, DGELU_BIAS = CUBLASLT_EPILOGUE_DGELU_BGRAD,
                             DBIAS = CUBLASLT_EPILOGUE_BGRADA;
    const Product products[] = {
        { "square", 8192, 8192, 8192, 0, 0, 8192, 8192, 8192, H, NONE, 0, 0 },
        { "logits", V, T, E, 1, 0, E, E, P, H, NONE, 0, 0 },
        { "logits, padded", P, T, E, 1, 0, E, E, P, H, NONE, 0, 0 },
        { "logits: dx", E, T, V, 0, 0, E, P, E, S, NONE, 0, 0 },
        { "logits: dx, padded", E, T, P, 0, 0, E, P, E, S, NONE, 0, 0 },
        { "logits: dx, padded, bf16", E, T, P, 0, 0, E, P, E, H, NONE, 0, 0 },
        { "logits: dw", E, V, T, 0, 1, E, P, E, S, NONE, 0, 0 },
        { "logits: dw, padded", E, P, T, 0, 1, E, P, E, S, NONE, 0, 0 },
        { "q, bias", E, T, E, 0, 0, E, E, E, H, BIAS, 0, 0 },
        { "q, k, v", 3 * E, T, E, 0, 0, 3 * E, E, 3 * E, H, NONE, 0, 0 },
        { "q, k, v, bias", 3 * E, T, E, 0, 0, 3 * E, E, 3 * E, H, BIAS, 0, 0 },
        { "q: dx", E, T, E, 1, 0, 3 * E, E, E, H, NONE, 0, 0 },
        { "q, k, v: dx", E, T, 3 * E, 1, 0, 3 * E, 3 * E, E, H, NONE, 0, 0 },
        { "q: dw", E, E, T, 0, 1, E, E, E, S, NONE, 0, 0 },
        { "q, k, v: dw", 3 * E, E, T, 0, 1, 3 * E, E, 3 * E, S, NONE, 0, 0 },
        { "up", F, T, E, 0, 0, F, E, F, H, NONE, 0, 0 },
        { "up, bias", F, T, E, 0, 0, F, E, F, H, BIAS, 0, 0 },
        { "up, bias, gelu", F, T, E, 0, 0, F, E, F, H, GELU, 0, 0 },
        { "up, bias, gelu, its operand kept", F, T, E, 0, 0, F, E, F, H, KEPT, 0, 0 },
        { "up: dx", E, T, F, 1, 0, F, F, E, S, NONE, 0, 0 },
        { "up: dx, bf16", E, T, F, 1, 0, F, F, E, H, NONE, 0, 0 },
        { "up: dw, added", F, E, T, 0, 1, F, E, F, S, NONE, 1, 0 },
        { "up: dw, added, bias gradient", F, E, T, 0, 1, F, E, F, S, DBIAS, 1, 0 },
        { "down", E, T, F, 0, 0, E, F, E, H, NONE, 0, 0 },
        { "down, bias, residual", E, T, F, 0, 0, E, F, E, H, BIAS, 1, 0 },
        { "down: dx", F, T, E, 1, 0, E, E, F, H, NONE, 0, 0 },
        { "down: dx, dgelu", F, T, E, 1, 0, E, E, F, H, DGELU, 0, 0 },
        { "down: dx, dgelu, weights by columns", F, T, E, 0, 0, F, E, F, H, DGELU, 0, 0 },
        { "down: dx, dgelu, bias gradient", F, T, E, 1, 0, E, E, F, H, DGELU_BIAS, 0, 0 },
        { "down: dx, dgelu, bias gradient, weights by columns", F, T, E, 0, 0, F, E, F, H, DGELU_BIAS, 0, 0 },
        { "down: dw", E, F, T, 0, 1, E, F, E, S, NONE, 0, 0 },
        { "down: dw, added", E, F, T, 0, 1, E, F, E, S, NONE, 1, 0 },
        { "down: dw, bias gradient", E, F, T, 0, 1, E, F, E, S, DBIAS, 0, 0 },
        { "down: dw, bf16", E, F, T, 0, 1, E, F, E, H, NONE, 0, 0 },
        { "1.5B: up, bias, gelu", 6400, T / 2, 1600, 0, 0, 6400, 1600, 6400, H, KEPT, 0, 0 },
        { "1.5B: down", 1600, T / 2, 6400, 0, 0, 1600, 6400, 1600, H, NONE, 0, 0 },
        { "1.5B: up: dw", 1600, 6400, T / 2, 0, 1, 1600, 6400, 1600, S, NONE, 0, 0 },
        { "8B: gate", 14336, T / 4, 4096, 0, 0, 14336, 4096, 14336, H, NONE, 0, 0 },
        { "8B: down", 4096, T / 4, 14336, 0, 0, 4096, 14336, 4096, H, NONE, 0, 0 },
        { "8B: gate: dx", 4096, T / 4, 14336, 1, 0, 14336, 14336, 4096, H, NONE, 0, 0 },
        { "8B: gate: dw", 14336, 4096, T / 4, 0, 1, 14336, 4096, 14336, S, NONE, 0, 0 },
        { "8B: gate: dw, added", 14336, 4096, T / 4, 0, 1, 14336, 4096, 14336, S, NONE, 1, 0 },
        { "8B: gate, 8 bits, tensors", 14336, T / 4, 4096, 1, 0, 4096, 4096, 14336, H, NONE, 0,
          SCALED(TENSOR, TENSOR) },
        { "8B: gate, 8 bits, rows", 14336, T / 4, 4096, 1, 0, 4096, 4096, 14336, H, NONE, 0, SCALED(ROWS, ROWS) },
        { "8B: gate, 8 bits, terms", 14336, T / 4, 4096, 1, 0, 4096, 4096, 14336, H, NONE, 0, SCALED(TERMS, TERMS) },
        { "8B: gate, 8 bits, squares", 14336, T / 4, 4096, 1, 0, 4096, 4096, 14336, H, NONE, 0,
          SCALED(SQUARES, TERMS) },
        { "8B: down, 8 bits, tensors", 4096, T / 4, 14336, 1, 0, 14336, 14336, 4096, H, NONE, 0,
          SCALED(TENSOR, TENSOR) },
        { "8B: down, 8 bits, rows", 4096, T / 4, 14336, 1, 0, 14336, 14336, 4096, H, NONE, 0, SCALED(ROWS, ROWS) },
        { "8B: down, 8 bits, terms", 4096, T / 4, 14336, 1, 0, 14336, 14336, 4096, H, NONE, 0, SCALED(TERMS, TERMS) },
        { "8B: down, 8 bits, squares", 4096, T / 4, 14336, 1, 0, 14336, 14336, 4096, H, NONE, 0,
          SCALED(SQUARES, TERMS) },
        { "8B: gate: dw, 8 bits, tensors", 14336, 4096, T / 4, 1, 0, T / 4, T / 4, 14336, S, NONE, 0,
          SCALED(TENSOR, TENSOR) },
        { "8B: gate: dw, 8 bits, rows", 14336, 4096, T / 4, 1, 0, T / 4, T / 4, 14336, S, NONE, 0, SCALED(ROWS, ROWS) },
        { "8B: gate: dw, 8 bits, rows, bf16", 14336, 4096, T / 4, 1, 0, T / 4, T / 4, 14336, H, NONE, 0,
          SCALED(ROWS, ROWS) },
        { "8B: gate: dw, 8 bits, terms", 14336, 4096, T / 4, 1, 0, T / 4, T / 4, 14336, S, NONE, 0,
          SCALED(TERMS, TERMS) },
        { "8B: q, 8 bits, tensors", 4096, T / 4, 4096, 1, 0, 4096, 4096, 4096, H, NONE, 0, SCALED(TENSOR, TENSOR) },
        { "8B: q, 8 bits, rows", 4096, T / 4, 4096, 1, 0, 4096, 4096, 4096, H, NONE, 0, SCALED(ROWS, ROWS) },
    };
    const int count = sizeof products / sizeof *products;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cublasLtCreate(&library));
    allocate(products, count);
    printf("| product | m x n x k, column-major | first kernel, us | Tflop/s | best, us | Tflop/s |\n"
           "| --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < count; i++)
        probe(&products[i]);
    return 0;
}
