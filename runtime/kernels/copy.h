/* copy.h -- boxes of elements from one layout to another: pad and concat. */
#ifndef MPC_KERNELS_COPY_H
#define MPC_KERNELS_COPY_H

#include "element.h"

#include <string.h>

/* For all loops over a box: sizes and strides count elements, the innermost dim last. rt_row_offset: the index of row
 * `row` (over all dims but the last) in an array with these strides. */
RT_INLINE int64_t rt_row_offset(int64_t row, int rank, const int64_t size[], const int64_t stride[])
{
    int64_t offset = 0;
    for (int i = rank - 2; i >= 0; i--) {
        offset += row % size[i] * stride[i];
        row /= size[i];
    }
    return offset;
}

RT_INLINE int64_t rt_row_count(int rank, const int64_t size[])
{
    int64_t rows = 1;
    for (int i = 0; i < rank - 1; i++)
        rows *= size[i];
    return rows;
}

/* Copies a box of elements of `bytes` bytes (1, 2 or 4); rank >= 1.  The two do not overlap.  Order: parallel over
 * rows, each written by one thread. */
RT_INLINE void rt_copy(int bytes, void *restrict to, const int64_t to_stride[], const void *restrict from,
                       const int64_t from_stride[], int rank, const int64_t size[])
{
    const int64_t rows = rt_row_count(rank, size), columns = size[rank - 1];
    const int64_t to_step = to_stride[rank - 1] * bytes, from_step = from_stride[rank - 1] * bytes;
#pragma omp parallel for if (rows * columns >= 16384)
    for (int64_t row = 0; row < rows; row++) {
        char *out = (char *)to + rt_row_offset(row, rank, size, to_stride) * bytes;
        const char *in = (const char *)from + rt_row_offset(row, rank, size, from_stride) * bytes;
        if (to_step == bytes && from_step == bytes)
            memcpy(out, in, (size_t)(columns * bytes));
        else
            for (int64_t i = 0; i < columns; i++)
                memcpy(out + i * to_step, in + i * from_step, (size_t)bytes);
    }
}

/* Sets a box of elements to zero, which is all bits zero in every element type. */
RT_INLINE void rt_clear(int bytes, void *to, const int64_t stride[], int rank, const int64_t size[])
{
    const int64_t rows = rt_row_count(rank, size), columns = size[rank - 1], step = stride[rank - 1] * bytes;
#pragma omp parallel for if (rows * columns >= 16384)
    for (int64_t row = 0; row < rows; row++) {
        char *out = (char *)to + rt_row_offset(row, rank, size, stride) * bytes;
        if (step == bytes)
            memset(out, 0, (size_t)(columns * bytes));
        else
            for (int64_t i = 0; i < columns; i++)
                memset(out + i * step, 0, (size_t)bytes);
    }
}

#endif
