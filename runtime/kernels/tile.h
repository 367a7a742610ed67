/* tile.h -- small products of tiles that lie in the cache, for kernels that fuse products with other work. */
#ifndef MPC_KERNELS_TILE_H
#define MPC_KERNELS_TILE_H

#include "element.h"

enum { RT_LANES = 16 };

typedef float RtVector __attribute__((vector_size(64)));
typedef float RtUnaligned __attribute__((vector_size(64), aligned(4)));

/* One block of ROWS rows and VECTORS * 16 columns of C (+)= A B, held in registers. */
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

RT_TILE_BLOCK(rt_tile_4x4, 4, 4)
RT_TILE_BLOCK(rt_tile_4x1, 4, 1)
RT_TILE_BLOCK(rt_tile_1x4, 1, 4)
RT_TILE_BLOCK(rt_tile_1x1, 1, 1)

/* C[rows, columns] (+)= A[rows, depth] B[depth, columns]; columns is a multiple of 16; A may have any strides. */
RT_INLINE void rt_tile_product(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t a_row,
                               int64_t a_column, const float *b, int64_t b_row, float *c, int64_t c_row,
                               bool accumulate)
{
    for (int64_t j = 0; j < columns;) {
        const bool wide = columns - j >= 4 * RT_LANES;
        for (int64_t i = 0; i < rows;) {
            const bool tall = rows - i >= 4;
            const float *from = a + i * a_row;
            float *to = c + i * c_row + j;
            if (tall && wide)
                rt_tile_4x4(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            else if (tall)
                rt_tile_4x1(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            else if (wide)
                rt_tile_1x4(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            else
                rt_tile_1x1(depth, from, a_row, a_column, b + j, b_row, to, c_row, accumulate);
            i += tall ? 4 : 1;
        }
        j += wide ? 4 * RT_LANES : RT_LANES;
    }
}

#endif
