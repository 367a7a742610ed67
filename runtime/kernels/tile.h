/* tile.h -- small products of tiles in the cache, for kernels that fuse products with other work.
 *
 * A block of C stays in registers during the sum.  6 rows of 4 vectors use 24 of 32 registers and leave some for a
 * vector of B and the broadcast element of A; with 16 registers, rows have 2 vectors.  gcc then reads each vector of B
 * once for 6 rows: 120 of 120 GFLOP/s on one Zen 4 core, with blocks of 4 rows 97 (65 unaligned).
 */
#ifndef MPC_KERNELS_TILE_H
#define MPC_KERNELS_TILE_H

#include "element.h"

#if !defined(__GNUC__)
/* The compiler has no vectors: what it would make of the attribute below is a number. */
enum { RT_LANES = 1, RT_WIDE = 4 };
typedef float RtVector, RtUnaligned;
#else
#if defined(__AVX512F__)
enum { RT_LANES = 16, RT_WIDE = 4 };
#elif defined(__AVX__)
enum { RT_LANES = 8, RT_WIDE = 2 };
#elif defined(__aarch64__)
enum { RT_LANES = 4, RT_WIDE = 4 };
#else
enum { RT_LANES = 4, RT_WIDE = 2 };
#endif
typedef float RtVector __attribute__((vector_size(RT_LANES * 4)));
typedef float RtUnaligned __attribute__((vector_size(RT_LANES * 4), aligned(4)));
#endif

/* Alignment of arrays read as vectors: avoids reads across two cache lines. */
#define RT_ALIGNED __attribute__((aligned(64)))

RT_INLINE int64_t rt_whole_vectors(int64_t count) { return (count + RT_LANES - 1) / RT_LANES * RT_LANES; }

/* One block of ROWS rows and VECTORS vectors of C (+)= A B. */
#define RT_TILE_BLOCK(name, ROWS, VECTORS)                                                                             \
    RT_INLINE void name(int64_t depth, const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t b_row, \
                        float *c, int64_t c_row, bool accumulate)                                                      \
    {                                                                                                                  \
        RtVector sum[ROWS][VECTORS];                                                                                   \
        for (int i = 0; i < ROWS; i++)                                                                                 \
            for (int j = 0; j < VECTORS; j++)                                                                          \
                sum[i][j] = accumulate ? *(const RtUnaligned *)(c + i * c_row + j * RT_LANES) : (RtVector){ 0 };       \
        for (int64_t k = 0; k < depth; k++) {                                                                          \
            RtVector row[VECTORS];                                                                                     \
            for (int j = 0; j < VECTORS; j++)                                                                          \
                row[j] = *(const RtUnaligned *)(b + k * b_row + j * RT_LANES);                                         \
            for (int i = 0; i < ROWS; i++) {                                                                           \
                const float element = a[i * a_row + k * a_column];                                                     \
                for (int j = 0; j < VECTORS; j++)                                                                      \
                    sum[i][j] += element * row[j];                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        for (int i = 0; i < ROWS; i++)                                                                                 \
            for (int j = 0; j < VECTORS; j++)                                                                          \
                *(RtUnaligned *)(c + i * c_row + j * RT_LANES) = sum[i][j];                                            \
    }

RT_TILE_BLOCK(rt_tile_6_wide, 6, RT_WIDE)
RT_TILE_BLOCK(rt_tile_4_wide, 4, RT_WIDE)
RT_TILE_BLOCK(rt_tile_1_wide, 1, RT_WIDE)
RT_TILE_BLOCK(rt_tile_6_narrow, 6, 1)
RT_TILE_BLOCK(rt_tile_4_narrow, 4, 1)
RT_TILE_BLOCK(rt_tile_1_narrow, 1, 1)

/* C[rows, columns] (+)= A[rows, depth] B[depth, columns]; columns is a multiple of RT_LANES; A may have any strides.
 * Order: each element of C is one sum, in the order of depth. */
RT_OUTLINE void rt_tile_product(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t a_row,
                                int64_t a_column, const float *b, int64_t b_row, float *c, int64_t c_row,
                                bool accumulate)
{
    for (int64_t j = 0; j < columns;) {
        const bool wide = columns - j >= RT_WIDE * RT_LANES;
        for (int64_t i = 0; i < rows;) {
            const int64_t left = rows - i;
            const float *from = a + i * a_row;
            float *to = c + i * c_row + j;
            if (left >= 6 && wide)
                rt_tile_6_wide(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            else if (left >= 4 && wide)
                rt_tile_4_wide(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            else if (wide)
                rt_tile_1_wide(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            else if (left >= 6)
                rt_tile_6_narrow(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            else if (left >= 4)
                rt_tile_4_narrow(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            else
                rt_tile_1_narrow(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            i += left >= 6 ? 6 : left >= 4 ? 4 : 1;
        }
        j += wide ? RT_WIDE * RT_LANES : RT_LANES;
    }
}

#endif
