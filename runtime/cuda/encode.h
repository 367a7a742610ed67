/* encode.h -- the encoding of an operand in 8 bits: shared by the host, which plans it (eight_bits.c), and the device,
 * which computes it (encode.cuh). */
#ifndef MPC_CUDA_ENCODE_H
#define MPC_CUDA_ENCODE_H

#include <stdint.h>

enum {
    RT_ENCODE_BLOCK = 128, /* terms that share a scale */
    RT_ENCODE_LINES = 64,  /* of a tile, where lines lie next to each other */
    RT_ENCODE_WARPS = 8,
    RT_ENCODE_PITCH = RT_ENCODE_BLOCK + 2 /* elements between lines of a tile: two of them are in each bank */
};

/* The numbers from one row of the scales of squares to the next: of so many blocks, and to a multiple of 16 bytes. */
#define RT_ENCODE_ROW(blocks) (((blocks) + 3) / 4 * 4)

/* Rows of A or columns of B: `lines` of `terms`, with these strides, of which one is 1. */
typedef struct {
    int64_t lines, terms;
    int64_t line, term;
} RtEncoding;

#endif
