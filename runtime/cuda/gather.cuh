/* gather.cuh -- gathers rows of a table by index, and its gradient: kernels/gather.h on the device.
 *
 * Letters: h, of the tables with indices of their own; N picked rows of each, V rows of the table; WIDTH elements are
 * loaded and stored at once.
 */
#ifndef MPC_CUDA_TAKE_H
#define MPC_CUDA_TAKE_H

#include "element.cuh"

#include "../kernels/shape.h"

/* One warp per row. */
enum { RT_TAKE_WARPS = 8 };

extern "C" __device__ RtBadIndex rt_bad_index;
__device__ RtBadIndex rt_bad_index;

RT_INLINE void rt_copy_text(char *to, int room, const char *from)
{
    int i = 0;
    for (; i < room - 1 && from[i]; i++)
        to[i] = from[i];
    to[i] = 0;
}

/* Records an index out of range on all ranks; the trainer checks it after the function (run.c). */
RT_INLINE void rt_note_index(int64_t index, const RtGather s)
{
    if (atomicExch(&rt_bad_index.is_claimed, 1))
        return;
    rt_bad_index.index = index;
    rt_bad_index.size = s.size;
    rt_copy_text(rt_bad_index.dim, sizeof rt_bad_index.dim, s.dim);
    rt_copy_text(rt_bad_index.where, sizeof rt_bad_index.where, s.where);
}

/* picked[p, h, n] = table[p, h, index[h, n]], or zeros if another rank holds the row, or none does. */
template <int WIDTH, typename T, typename P>
RT_INLINE void rt_gather(const T *table, const int32_t *index, P *picked, const RtGather s)
{
    const int64_t item = (int64_t)blockIdx.x * RT_TAKE_WARPS + threadIdx.x / 32;
    if (item >= s.pre * s.shared * s.count)
        return;
    using V = decltype(rt_value(T()));
    const int64_t n = item % s.count, h = item / s.count % s.shared, p = item / s.count / s.shared;
    const int32_t at = index[h * s.index.shared + n * s.index.row];
    const int64_t row = rt_gather_row_of(at, s);
    const bool known = row >= 0 && row < s.rows;
    if ((at < 0 || at >= s.size) && threadIdx.x % 32 == 0)
        rt_note_index(at, s);
    const T *from = table + rt_gather_at(p, h, known ? row : 0, s.table);
    P *to = picked + rt_gather_at(p, h, n, s.picked);
    for (int64_t i = threadIdx.x % 32 * WIDTH; i < s.post; i += 32 * WIDTH) {
        const int count = (int)rt_least<int64_t>(WIDTH, s.post - i);
        RtPack<V, WIDTH> values = rt_all<WIDTH>(V(0));
        if (known) {
            const RtPack<T, WIDTH> pack = rt_load_some<WIDTH>(from + i, count);
#pragma unroll
            for (int e = 0; e < WIDTH; e++)
                values[e] = rt_value(pack[e]);
        }
        rt_store_some(to + i, values, count);
    }
}

/* --- table[p, h, index[h, n]] += picked[p, h, n], without atomics ------------------------------------
 *
 * Three launches: the table is cleared, or the sum copied to it, which no launch does if the sum is the table; places n
 * of each h are sorted by their index, stably; a block adds the places of one index.
 */

/* table = sum, or 0 without one.  One warp per row. */
template <int WIDTH, typename P, typename T>
RT_INLINE void rt_scatter_add_begin(const P *, const int32_t *, const T *sum, T *table, float *, const RtGather s)
{
    const int64_t item = (int64_t)blockIdx.x * RT_TAKE_WARPS + threadIdx.x / 32;
    if (item >= s.pre * s.shared * s.rows)
        return;
    const int64_t h = item / s.rows % s.shared;
    T *to = table + rt_gather_at(item / s.rows / s.shared, h, item % s.rows, s.table);
    const T *from = sum + rt_gather_at(item / s.rows / s.shared, h, item % s.rows, s.sum);
    for (int64_t i = threadIdx.x % 32 * WIDTH; i < s.post; i += 32 * WIDTH) {
        const int count = (int)rt_least<int64_t>(WIDTH, s.post - i);
        RtPack<float, WIDTH> values = rt_all<WIDTH>(0.0f);
        if (sum)
            values = rt_load_some<WIDTH>(from + i, count);
        rt_store_some(to + i, values, count);
    }
}

/* In scratch: the sorted indices of each h, then their places. */
RT_INLINE int32_t *rt_sorted(float *scratch, int64_t h, const RtGather s)
{
    return reinterpret_cast<int32_t *>(scratch) + h * s.count;
}

RT_INLINE int32_t *rt_order(float *scratch, int64_t h, const RtGather s) { return rt_sorted(scratch, s.shared + h, s); }

/* The number of 128 indices that precede `own` of place n in the order; `base` is the first place of the block's 32. */
RT_INLINE int rt_count_before(const int32_t *tile, int from, int base, int n, int32_t own)
{
    int count = 0;
    if (from + 128 <= base || from >= base + 32) { /* all places are before the block's, or all after */
        const int32_t limit = from < base ? own + 1 : own;
        for (int i = 0; i < 128; i += 4) {
            const RtPack<int32_t, 4> four = rt_load_pack<4>(tile + i);
#pragma unroll
            for (int e = 0; e < 4; e++)
                count += four[e] < limit;
        }
    } else {
        for (int i = 0; i < 128; i++)
            count += tile[i] < own || (tile[i] == own && from + i < n);
    }
    return count;
}

/* A block has 32 places of one h; each of its warps compares them with an eighth of all places. */
template <typename P, typename T>
RT_INLINE void rt_scatter_add_order(const P *, const int32_t *index, const T *, T *, float *scratch, const RtGather s)
{
    RT_DYNAMIC_SHARED(memory); /* 5120 bytes: a tile of 128 for each warp, and counts */
    int32_t *tile = reinterpret_cast<int32_t *>(memory) + threadIdx.x / 32 * 128;
    int(*counts)[32] = reinterpret_cast<int(*)[32]>(memory + RT_TAKE_WARPS * 512);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, all = (int)s.count, blocks = (all + 31) / 32;
    const int h = blockIdx.x / blocks, base = blockIdx.x % blocks * 32, n = base + lane;
    index += h * s.index.shared;
    const int32_t own = n < all ? index[n * s.index.row] : 0;
    int before = 0;
    for (int from = warp * 128; from < all; from += RT_TAKE_WARPS * 128) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = from + 32 * i + lane;
            tile[32 * i + lane] = at < all ? index[at * s.index.row] : INT32_MAX;
        }
        __syncwarp();
        before += rt_count_before(tile, from, base, n, own);
        __syncwarp();
    }
    counts[warp][lane] = before;
    __syncthreads();
    if (warp > 0 || n >= all)
        return;
    for (int other = 1; other < RT_TAKE_WARPS; other++)
        before += counts[other][lane];
    rt_sorted(scratch, h, s)[before] = own;
    rt_order(scratch, h, s)[before] = n;
}

/* The sum of one warp: every eighth place, starting with the warp's number, of the index whose first place in the order
 * is `first`. */
template <int WIDTH, typename P>
RT_INLINE RtPack<float, WIDTH> rt_scatter_sum(const P *picked, const int32_t *sorted, const int32_t *order, int first,
                                              int count, const RtGather s)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    RtPack<float, WIDTH> sum = rt_all<WIDTH>(0.0f);
    for (int from = first + warp;; from += 32 * RT_TAKE_WARPS) {
        const int at = from + lane * RT_TAKE_WARPS;
        const bool is_same = at < s.count && sorted[at] == sorted[first];
        const int n = is_same ? order[at] : 0, all = __popc(__ballot_sync(0xFFFFFFFFu, is_same));
        for (int i = 0; i < all; i++) {
            const P *row = picked + (int64_t)__shfl_sync(0xFFFFFFFFu, n, i) * s.picked.row;
            if (count <= 0)
                continue;
            const RtPack<P, WIDTH> pack = rt_load_some<WIDTH>(row, count);
#pragma unroll
            for (int e = 0; e < WIDTH; e++)
                sum[e] += rt_value(pack[e]);
        }
        if (all < 32)
            return sum;
    }
}

/* A block has 32 * WIDTH columns of one place of the order: if the place is the first of its index, the block sums all
 * places of the index, in f32; each warp has every eighth, and their sums are added in order. */
template <int WIDTH, typename P, typename T>
RT_INLINE void rt_scatter_add(const P *picked, const int32_t *, const T *before, T *table, float *scratch,
                              const RtGather s)
{
    RT_DYNAMIC_SHARED(memory); /* 1024 * WIDTH bytes */
    RtPack<float, WIDTH>(*parts)[32] = reinterpret_cast<RtPack<float, WIDTH>(*)[32]>(memory);
    const int tiles = (int)((s.post + 32 * WIDTH - 1) / (32 * WIDTH)), block = blockIdx.x / tiles;
    const int64_t h = block / s.count % s.shared, p = block / s.count / s.shared;
    const int first = (int)(block % s.count), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int32_t *sorted = rt_sorted(scratch, h, s);
    const int64_t column = (int64_t)(blockIdx.x % tiles * 32 + lane) * WIDTH, row = rt_gather_row_of(sorted[first], s);
    const int count = (int)rt_least<int64_t>(WIDTH, s.post - column);
    if (row < 0 || row >= s.rows || (first > 0 && sorted[first - 1] == sorted[first]))
        return;
    RtPack<float, WIDTH> sum =
        rt_scatter_sum<WIDTH>(picked + rt_gather_at(p, h, 0, s.picked) + (count > 0 ? column : 0), sorted,
                              rt_order(scratch, h, s), first, count, s);
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || count <= 0)
        return;
    for (int other = 1; other < RT_TAKE_WARPS; other++)
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            sum[e] += parts[other][lane][e];
    T *to = table + rt_gather_at(p, h, row, s.table) + column;
    if (before) {
        const RtPack<T, WIDTH> old = rt_load_some<WIDTH>(to, count);
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            sum[e] += rt_value(old[e]);
    }
    rt_store_some(to, sum, count);
}

#endif
