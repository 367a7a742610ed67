/* eight_bits.h -- internals of products of numbers of 8 bits: eight_bits.c describes and runs them, eight_choose.c
 * decides which products are computed so. */
#ifndef MPC_CUDA_EIGHT_BITS_H
#define MPC_CUDA_EIGHT_BITS_H

#include "encode.h"
#include "product.h"

typedef enum { BY_SQUARES, BY_LINES, N_WAYS } Way;

/* cuBLASLt's A or B, which are B and A of a product whose result is transposed. */
typedef struct {
    cublasLtMatrixLayout_t layout;
    RtEncoding encoding;
    bool in_squares; /* 128 lines share a scale, whoever multiplies it */
    cudaKernel_t kernel;
    int64_t codes, scales; /* where they are in the memory for encoded operands */
} EncodedOperand;

typedef struct {
    EncodedOperand operand[2];
    Request request; /* without a description: the product has no such way */
    int64_t bytes;   /* of encoded operands */
} Description;

typedef struct RtEightBits {
    Description by[N_WAYS];
    Way way;
    cublasLtMatmulAlgo_t algorithm;
    bool is_used;
} EightBits;

/* Writes both operands as numbers of 8 bits, in the way that is chosen. */
void rt_eight_encode(Rt *rt, const Product *p, const Pointers *at);

/* Sets where scales are; false if cuBLASLt does not support that. */
bool rt_eight_point(Rt *rt, Description *d);

#endif
