/* gather.h -- gathers rows of a table by index, and its gradient. */
#ifndef MPC_KERNELS_TAKE_H
#define MPC_KERNELS_TAKE_H

#include "element.h"
#include "shape.h"

/* Elements of a row processed at a time, as f32. */
enum { RT_TAKE_CHUNK = 512 };

/* to[i] = from[i], or to[i] += from[i]; zeros if `from` is NULL. */
RT_INLINE void rt_gather_row(const void *from, int64_t from_at, RtType from_type, void *to, int64_t to_at,
                             RtType to_type, int64_t count, bool accumulate)
{
    for (int64_t i = 0; i < count; i += RT_TAKE_CHUNK) {
        const int64_t n = count - i < RT_TAKE_CHUNK ? count - i : RT_TAKE_CHUNK;
        float row[RT_TAKE_CHUNK], sum[RT_TAKE_CHUNK];
        if (from)
            rt_load_row(from, from_at + i, n, from_type, row);
        else
            memset(row, 0, (size_t)n * sizeof *row);
        if (accumulate) {
            rt_load_row(to, to_at + i, n, to_type, sum);
#pragma omp simd
            for (int64_t j = 0; j < n; j++)
                row[j] += sum[j];
        }
        rt_store_row(to, to_at + i, n, to_type, row);
    }
}

/* Records an index out of range on all ranks, for the trainer to report after the function (index.c).  Without this
 * function (weak), kernels continue with zeros. */
__attribute__((weak)) void rt_index_out_of_range(int64_t index, int64_t size, const char *dim, const char *where);

RT_INLINE void rt_gather_check(int64_t index, const RtGather s)
{
    if ((index < 0 || index >= s.size) && rt_index_out_of_range)
        rt_index_out_of_range(index, s.size, s.dim, s.where);
}

/* picked[p, h, n] = table[p, h, index[h, n]]; indices of rows that other ranks hold give zeros.  Order: parallel over
 * picked rows. */
RT_KERNEL void rt_gather(const void *table, const int32_t *index, void *picked, const RtGather s)
{
#pragma omp parallel for collapse(3)
    for (int64_t p = 0; p < s.pre; p++)
        for (int64_t h = 0; h < s.shared; h++)
            for (int64_t n = 0; n < s.count; n++) {
                const int64_t at = index[h * s.index.shared + n * s.index.row], row = rt_gather_row_of(at, s);
                const bool known = row >= 0 && row < s.rows;
                rt_gather_check(at, s);
                rt_gather_row(known ? table : NULL, rt_gather_at(p, h, known ? row : 0, s.table), s.table_type, picked,
                              rt_gather_at(p, h, n, s.picked), s.picked_type, s.post, false);
            }
}

/* table[p, h, v] = sum[p, h, v], or 0 without one, plus the sum of picked[p, h, n] over all n with index[h, n] = v, in
 * the order of n.  The sum has the table's type, and may be the table.  Order: the rows of each p, h are dealt to a
 * number of blocks that depends on `pre` and `shared` alone, v = block, block + blocks, ..., since frequent tokens have
 * small numbers; each reads all indices.  So the sums do not depend on the number of threads. */
RT_KERNEL void rt_scatter_add(const void *picked, const int32_t *index, const void *sum, void *table, const RtGather s)
{
    enum { SHARES = 64 }; /* of the work, at least */
    const int64_t tables = s.pre * s.shared, blocks = tables < SHARES ? SHARES / tables : 1;
#pragma omp parallel for collapse(2) schedule(dynamic, 1)
    for (int64_t each = 0; each < tables; each++)
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t p = each / s.shared, h = each % s.shared;
            for (int64_t v = block; v < s.rows && sum != table; v += blocks)
                rt_gather_row(sum, rt_gather_at(p, h, v, s.sum), s.table_type, table, rt_gather_at(p, h, v, s.table),
                              s.table_type, s.post, false);
            for (int64_t n = 0; n < s.count; n++) {
                const int64_t v = rt_gather_row_of(index[h * s.index.shared + n * s.index.row], s);
                if (v >= 0 && v < s.rows && v % blocks == block)
                    rt_gather_row(picked, rt_gather_at(p, h, n, s.picked), s.picked_type, table,
                                  rt_gather_at(p, h, v, s.table), s.table_type, s.post, true);
            }
        }
}

#endif
