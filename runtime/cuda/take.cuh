/* take.cuh -- rows of a table by index, and the gradient of that: kernels/take.h on the device.
 *
 * Letters: N rows that are picked, V rows of the table; WIDTH elements are loaded and stored at once.
 */
#ifndef MPC_CUDA_TAKE_H
#define MPC_CUDA_TAKE_H

#include "element.cuh"

#include "../kernels/shape.h"

/* A warp has a row at a time. */
enum { RT_TAKE_WARPS = 8 };

/* picked[p, n] = table[p, index[n]], or zeros where another rank holds the row. */
template <int WIDTH, typename T, typename P>
RT_INLINE void rt_take(const T *table, const int32_t *index, P *picked, const RtTake s)
{
    const int64_t item = (int64_t)blockIdx.x * RT_TAKE_WARPS + threadIdx.x / 32;
    if (item >= s.pre * s.count)
        return;
    const int64_t p = item / s.count, n = item % s.count, row = index[n] - s.first_row;
    const bool known = row >= 0 && row < s.rows;
    const T *from = table + p * s.table.pre + (known ? row : 0) * s.table.row;
    P *to = picked + p * s.picked.pre + n * s.picked.row;
    for (int64_t i = threadIdx.x % 32 * WIDTH; i < s.post; i += 32 * WIDTH) {
        const int count = (int)rt_least<int64_t>(WIDTH, s.post - i);
        RtPack<float, WIDTH> values = rt_all<WIDTH>(0.0f);
        if (known) {
            const RtPack<T, WIDTH> pack = rt_load_some<WIDTH>(from + i, count);
#pragma unroll
            for (int e = 0; e < WIDTH; e++)
                values[e] = rt_value(pack[e]);
        }
        rt_store_some(to + i, values, count);
    }
}

/* table = 0: the first launch of a scatter_add.  A warp has a row at a time. */
template <int WIDTH, typename P, typename T>
RT_INLINE void rt_scatter_add_clear(const P *, const int32_t *, T *table, const RtTake s)
{
    const int64_t item = (int64_t)blockIdx.x * RT_TAKE_WARPS + threadIdx.x / 32;
    if (item >= s.pre * s.rows)
        return;
    T *to = table + item / s.rows * s.table.pre + item % s.rows * s.table.row;
    for (int64_t i = threadIdx.x % 32 * WIDTH; i < s.post; i += 32 * WIDTH)
        rt_store_some(to + i, rt_all<WIDTH>(0.0f), (int)rt_least<int64_t>(WIDTH, s.post - i));
}

/* Shared memory of a block that adds up rows: 1056 + 1024 * WIDTH bytes. */
template <int WIDTH> struct RtScatterShared {
    RtPack<float, WIDTH> parts[RT_TAKE_WARPS][32];
    int found[32 * RT_TAKE_WARPS], counts[RT_TAKE_WARPS];
};

/* The places from `from` on, 256 of them, that have this index: their numbers in order, in shared memory. */
RT_INLINE int rt_scatter_find(const int32_t *index, int64_t from, int64_t count, int32_t wanted, int *found,
                              int *counts)
{
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const bool is_wanted = from + thread < count && index[from + thread] == wanted;
    const uint32_t lanes = __ballot_sync(0xFFFFFFFFu, is_wanted);
    __syncthreads(); /* the list of the turn before has been read */
    if (lane == 0)
        counts[warp] = __popc(lanes);
    __syncthreads();
    int before = 0, all = 0;
    for (int i = 0; i < RT_TAKE_WARPS; i++) {
        before += i < warp ? counts[i] : 0;
        all += counts[i];
    }
    if (is_wanted)
        found[before + __popc(lanes & ((1u << lane) - 1))] = thread;
    __syncthreads();
    return all;
}

/* table[p, index[n]] += picked[p, n], without atomics: the block of the first n that has an index adds up all that
 * have it, warp w those of the list's numbers w, w + 8, ..., in f32; and the warps' sums in order.  A block has
 * 32 * WIDTH columns of one n; blocks of later ones find an earlier and leave. */
template <int WIDTH, typename P, typename T>
RT_INLINE void rt_scatter_add(const P *picked, const int32_t *index, T *table, const RtTake s)
{
    RT_DYNAMIC_SHARED(memory);
    RtScatterShared<WIDTH> &shared = *reinterpret_cast<RtScatterShared<WIDTH> *>(memory);
    const int64_t tiles = (s.post + 32 * WIDTH - 1) / (32 * WIDTH), block = blockIdx.x / tiles;
    const int64_t p = block / s.count, n = block % s.count;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t column = (blockIdx.x % tiles * 32 + lane) * WIDTH, row = index[n] - s.first_row;
    const int count = (int)rt_least<int64_t>(WIDTH, s.post - column);
    if (row < 0 || row >= s.rows)
        return;
    for (int64_t from = 0; from < n; from += 256) {
        const bool is_earlier = from + threadIdx.x < n && index[from + threadIdx.x] == index[n];
        if (__syncthreads_or(is_earlier))
            return;
    }
    RtPack<float, WIDTH> sum = rt_all<WIDTH>(0.0f);
    for (int64_t from = n; from < s.count; from += 256) {
        const int all = rt_scatter_find(index, from, s.count, index[n], shared.found, shared.counts);
        for (int i = warp; i < all && count > 0; i += RT_TAKE_WARPS) {
            const P *at = picked + p * s.picked.pre + (from + shared.found[i]) * s.picked.row + column;
            const RtPack<P, WIDTH> pack = rt_load_some<WIDTH>(at, count);
#pragma unroll
            for (int e = 0; e < WIDTH; e++)
                sum[e] += rt_value(pack[e]);
        }
    }
    shared.parts[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || count <= 0)
        return;
    for (int other = 1; other < RT_TAKE_WARPS; other++)
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            sum[e] += shared.parts[other][lane][e];
    rt_store_some(table + p * s.table.pre + row * s.table.row + column, sum, count);
}

#endif
