/* product.h -- internals of products: product.c describes and runs them, tune.c chooses among cuBLASLt's kernels. */
#ifndef MPC_CUDA_PRODUCT_H
#define MPC_CUDA_PRODUCT_H

#include "gpu.h"
#include "sizes.h"

#include <cublasLt.h>

#define FUNCTIONS(F)                                                                                                   \
    F(cublasLtCreate)                                                                                                  \
    F(cublasLtDestroy)                                                                                                 \
    F(cublasLtMatmulDescCreate)                                                                                        \
    F(cublasLtMatmulDescSetAttribute)                                                                                  \
    F(cublasLtMatmulDescDestroy)                                                                                       \
    F(cublasLtMatrixLayoutCreate)                                                                                      \
    F(cublasLtMatrixLayoutSetAttribute)                                                                                \
    F(cublasLtMatrixLayoutDestroy)                                                                                     \
    F(cublasLtMatmulPreferenceCreate)                                                                                  \
    F(cublasLtMatmulPreferenceSetAttribute)                                                                            \
    F(cublasLtMatmulPreferenceDestroy)                                                                                 \
    F(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    F(cublasLtMatmul)                                                                                                  \
    F(cublasLtGetStatusString)                                                                                         \
    F(cublasLtGetVersion)

#define POINTER(function) __typeof__(&function) function;

enum { A, B, C, OPERANDS };
enum { WORKSPACE = RT_GPU_PRODUCT_BYTES, LEAST_ALIGNMENT = 2, ALIGNMENTS = 6 }; /* of operands: 2 to 64 bytes */

/* An operand in cuBLASLt's terms: contiguous columns. */
typedef struct {
    RtType type;
    int64_t rows, columns, leading, batch;
    bool transposed; /* cuBLASLt must transpose it */
} Matrix;

/* A request to cuBLASLt, and its answer for each alignment. */
typedef struct {
    cublasLtMatmulDesc_t description;
    bool was_asked[ALIGNMENTS], has_algorithm[ALIGNMENTS];
    cublasLtMatmulAlgo_t algorithm[ALIGNMENTS];
} Request;

typedef struct {
    RtProductShape shape;
    bool swapped;                            /* C' = B' A' */
    cublasLtMatrixLayout_t layout[OPERANDS]; /* left, right, result */
    Request plain, with;                     /* with its epilogue, if cuBLASLt may support it */
} Product;

/* The addresses of operands in one run. */
typedef struct {
    const void *a, *b, *bias, *at;
    void *before, *sums, *scratch, *c;
} Pointers;

struct RtGpuProducts {
    union {
        struct {
            FUNCTIONS(POINTER)
        };
        void *at[15];
    };
    cublasLtHandle_t handle;
    int count;
    Product *product;
};

/* --- product.c ------------------------------------------------------------------------------ */

/* Up to `most` of cuBLASLt's kernels for operands of that alignment, the supposedly fastest first. */
int rt_product_kernels(const struct RtGpuProducts *all, const Product *p, const Request *request, int alignment,
                       int most, cublasLtMatmulHeuristicResult_t found[], cublasStatus_t *status);

/* Sets where the epilogue's operands and its second result are; false if cuBLASLt does not know them. */
bool rt_product_point(const struct RtGpuProducts *all, const Product *p, const Pointers *at);

/* Queues it with this kernel. */
cublasStatus_t rt_product_run(Rt *rt, const Product *p, const Request *request, const Pointers *at,
                              const cublasLtMatmulAlgo_t *algorithm);

#endif
