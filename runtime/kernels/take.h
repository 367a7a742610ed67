/* take.h -- rows of a table by index, and the gradient of that. */
#ifndef MPC_KERNELS_TAKE_H
#define MPC_KERNELS_TAKE_H

#include "element.h"

/* table [pre, rows, post], picked [pre, count, post], index [count]; strides of pre and rows or count; post is
 * contiguous. */
typedef struct {
    int64_t pre, rows, count, post;
    struct {
        int64_t pre, row;
    } table, picked;
    RtType table_type, picked_type;
} RtTake;

/* picked[p, n] = table[p, index[n]].  Indices are in range: the trainer has checked them; others give zeros.
 * Order: parallel over what is picked. */
RT_INLINE void rt_take(const void *table, const int32_t *index, void *picked, const RtTake s)
{
#pragma omp parallel for collapse(2)
    for (int64_t p = 0; p < s.pre; p++)
        for (int64_t n = 0; n < s.count; n++) {
            const bool known = index[n] >= 0 && index[n] < s.rows;
            const int64_t from = p * s.table.pre + (known ? index[n] : 0) * s.table.row;
            const int64_t to = p * s.picked.pre + n * s.picked.row;
#pragma omp simd
            for (int64_t i = 0; i < s.post; i++)
                rt_store(picked, to + i, known ? rt_load(table, from + i, s.table_type) : 0.0f, s.picked_type);
        }
}

/* table[p, v] = the sum of picked[p, n] over all n with index[n] = v, in the order of n.
 * Order: each of a fixed number of blocks owns a range of rows and goes through all indices, so the sums do not
 * depend on the number of threads. */
RT_INLINE void rt_scatter_add(const void *picked, const int32_t *index, void *table, const RtTake s)
{
    enum { BLOCKS = 16 };
#pragma omp parallel for
    for (int64_t block = 0; block < BLOCKS; block++) {
        const int64_t first = s.rows * block / BLOCKS, end = s.rows * (block + 1) / BLOCKS;
        for (int64_t p = 0; p < s.pre; p++) {
            for (int64_t v = first; v < end; v++)
                for (int64_t i = 0; i < s.post; i++)
                    rt_store(table, p * s.table.pre + v * s.table.row + i, 0.0f, s.table_type);
            for (int64_t n = 0; n < s.count; n++) {
                if (index[n] < first || index[n] >= end)
                    continue;
                const int64_t to = p * s.table.pre + index[n] * s.table.row, from = p * s.picked.pre + n * s.picked.row;
#pragma omp simd
                for (int64_t i = 0; i < s.post; i++)
                    rt_store(table, to + i,
                             rt_load(table, to + i, s.table_type) + rt_load(picked, from + i, s.picked_type),
                             s.table_type);
            }
        }
    }
}

#endif
