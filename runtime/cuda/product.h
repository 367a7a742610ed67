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

struct RtEightBits; /* eight_bits.c */

typedef struct {
    RtProductShape shape;
    bool swapped;                            /* C' = B' A' */
    cublasLtMatrixLayout_t layout[OPERANDS]; /* left, right, result */
    Request plain, with;                     /* with its epilogue, if cuBLASLt may support it */
    struct RtEightBits *eight;               /* of numbers of 8 bits; NULL: it is not, or cannot be computed as such */
} Product;

/* The addresses of operands in one run. */
typedef struct {
    const void *a, *b, *bias, *to, *at; /* to: NULL: c, if the product is added to anything */
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

/* Up to `most` of cuBLASLt's kernels for A, B and C of these layouts and that alignment, the supposedly fastest first;
 * `why`: there is none; NULL if nobody asks. */
int rt_product_kernels(const struct RtGpuProducts *all, const Product *p, const Request *request,
                       const cublasLtMatrixLayout_t layout[], int alignment, int most,
                       cublasLtMatmulHeuristicResult_t found[], cublasStatus_t *why);

/* Sets where the epilogue's operands and its second result are; false if cuBLASLt does not know them. */
bool rt_product_point(const struct RtGpuProducts *all, const Product *p, const Pointers *at);

/* Queues it, in 8 bits if that was chosen, with its epilogue or kernels for that. */
void rt_product_queue(Rt *rt, Product *p, const Pointers *at);

/* Without epilogue, in 16 bits. */
cublasStatus_t rt_product_plain(Rt *rt, Product *p, const Pointers *at);

/* False if this version of cuBLASLt does not know the attribute. */
bool rt_product_set(const struct RtGpuProducts *all, const Request *request, cublasLtMatmulDescAttributes_t attribute,
                    const void *value, size_t bytes);

/* Queues it with this kernel. */
cublasStatus_t rt_product_run(Rt *rt, const Product *p, const Request *request, const Pointers *at,
                              const cublasLtMatmulAlgo_t *algorithm);

/* --- tune.c --------------------------------------------------------------------------------- */

/* Where operands are in the arena, while nothing else is; NULL if they do not fit, else where the rest begins. */
char *rt_product_place(const Rt *rt, const RtProductShape *s, bool with_epilogue, Pointers *p);

/* The bytes of C. */
int64_t rt_product_result_bytes(const RtProductShape *s);

/* Text that tells shapes, strides and types apart; owned by the caller. */
char *rt_product_text(const Rt *rt, const RtProductShape *s, bool with_epilogue);

/* --- eight_bits.c, eight_choose.c ---------------------------------------------------------------------------- */

/* Describes it if cuBLASLt may have a kernel for it. */
void rt_eight_create(Rt *rt, Product *p);
void rt_eight_free(const struct RtGpuProducts *all, Product *p);

/* Is it to be used for these operands? */
bool rt_eight_is_used(const Product *p, const Pointers *at);

/* Encodes the operands and multiplies them. */
cublasStatus_t rt_eight_run(Rt *rt, const Product *p, const Pointers *at);

#endif
