/* experts.cuh -- mixtures of experts: kernels/experts.h on the device. */
#ifndef MPC_CUDA_EXPERTS_H
#define MPC_CUDA_EXPERTS_H

#include "gather.cuh"

/* y[row, c] = the place of the (c + 1)-th largest element: the first in order behind the one before.  A thread for each
 * row. */
template <typename T> RT_INLINE void rt_top_k(const T *x, int32_t *y, const RtTopK s)
{
    const int64_t row = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (row >= s.outer * s.inner)
        return;
    const T *from = x + row / s.inner * s.x.outer + row % s.inner * s.x.inner;
    int32_t *to = y + row / s.inner * s.y.outer + row % s.inner * s.y.inner;
    float last = 0;
    int64_t last_at = -1;
    for (int64_t c = 0; c < s.choices; c++) {
        float best = 0;
        int64_t best_at = -1;
        for (int64_t i = 0; i < s.count; i++) {
            const float own = rt_value(from[i * s.x.element]);
            const bool is_left = last_at < 0 || rt_is_ahead(last, last_at, own, i);
            if (is_left && (best_at < 0 || rt_is_ahead(own, i, best, best_at)))
                best = own, best_at = i;
        }
        to[c * s.y.element] = (int32_t)best_at;
        last = best;
        last_at = best_at;
    }
}

/* place[n] = the number of earlier elements equal to chosen[n].  A block has 32 elements of one queue; each of its
 * warps compares them with an eighth of those before. */
RT_INLINE void rt_place(const int32_t *chosen, int32_t *place, const RtQueueShape s)
{
    RT_DYNAMIC_SHARED(memory); /* 5120 bytes: a tile of 128 for each warp, and counts */
    int32_t *tile = reinterpret_cast<int32_t *>(memory) + threadIdx.x / 32 * 128;
    int(*counts)[32] = reinterpret_cast<int(*)[32]>(memory + RT_TAKE_WARPS * 512);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, all = (int)s.count, blocks = (all + 31) / 32;
    const int base = (int)(blockIdx.x % blocks) * 32, n = base + lane, end = base + 32 < all ? base + 32 : all;
    const int32_t *queue = chosen + blockIdx.x / blocks * s.chosen;
    const int32_t own = n < all ? queue[n] : -1;
    int before = 0;
    for (int from = warp * 128; from < end; from += RT_TAKE_WARPS * 128) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = from + 32 * i + lane;
            tile[32 * i + lane] = at < end ? queue[at] : -1;
        }
        __syncwarp();
        for (int i = 0; i < 128; i++)
            before += tile[i] == own && from + i < n;
        __syncwarp();
    }
    counts[warp][lane] = before;
    __syncthreads();
    if (warp > 0 || n >= all)
        return;
    for (int other = 1; other < RT_TAKE_WARPS; other++)
        before += counts[other][lane];
    const bool exists = own >= 0 && own < s.experts;
    place[blockIdx.x / blocks * s.place + n] = exists ? before : -1;
    if (!exists) {
        RtGather bound = {};
        bound.size = s.experts;
        bound.dim = s.dim;
        bound.where = s.where;
        rt_note_index(own, bound);
    }
}

/* A row of `post` elements, or zeros if `from` is NULL, by one warp. */
template <int WIDTH, typename T> RT_INLINE void rt_route_copy(const T *from, T *to, int64_t post)
{
    for (int64_t i = threadIdx.x % 32 * WIDTH; i < post; i += 32 * WIDTH) {
        const int count = (int)rt_least<int64_t>(WIDTH, post - i);
        RtPack<float, WIDTH> values = rt_all<WIDTH>(0.0f);
        if (from) {
            const RtPack<T, WIDTH> pack = rt_load_some<WIDTH>(from + i, count);
#pragma unroll
            for (int e = 0; e < WIDTH; e++)
                values[e] = rt_value(pack[e]);
        }
        rt_store_some(to + i, values, count);
    }
}

/* The rows of a warp: by token, and by slot, or -1. */
struct RtRouted {
    bool exists;
    int64_t token, slot;
};

RT_INLINE RtRouted rt_routed(const int32_t *chosen, const int32_t *place, const RtRoute s)
{
    const int64_t item = (int64_t)blockIdx.x * RT_TAKE_WARPS + threadIdx.x / 32, queue = s.outer * s.inner;
    if (item >= s.groups * queue)
        return RtRouted{ false, 0, -1 };
    const int64_t g = item / queue, i = item % queue / s.inner, j = item % s.inner;
    const int64_t row = rt_route_row(chosen[g * s.chosen.group + i * s.chosen.outer + j * s.chosen.inner],
                                     place[g * s.place.group + i * s.place.outer + j * s.place.inner], s);
    return RtRouted{ true, g * s.token.group + i * s.token.outer + j * s.token.inner,
                     row < 0 ? -1 : g * s.table.group + row };
}

/* y = 0.  One warp per row, here and below. */
template <int WIDTH, typename T>
RT_INLINE void rt_dispatch_clear(const T *, const int32_t *, const int32_t *, T *y, const RtRoute s)
{
    const int64_t item = (int64_t)blockIdx.x * RT_TAKE_WARPS + threadIdx.x / 32, rows = s.experts * s.slots;
    if (item >= s.groups * rows)
        return;
    T *to = y + item / rows * s.table.group + item % rows / s.slots * s.table.expert + item % s.slots * s.table.slot;
    rt_route_copy<WIDTH, T>(NULL, to, s.post);
}

/* y[g, chosen, place] = x[g, i, j].  No two rows have one place. */
template <int WIDTH, typename T>
RT_INLINE void rt_dispatch(const T *x, const int32_t *chosen, const int32_t *place, T *y, const RtRoute s)
{
    const RtRouted own = rt_routed(chosen, place, s);
    if (own.slot >= 0)
        rt_route_copy<WIDTH>(x + own.token, y + own.slot, s.post);
}

/* y[g, i, j] = x[g, chosen, place], or 0. */
template <int WIDTH, typename T>
RT_INLINE void rt_combine(const T *x, const int32_t *chosen, const int32_t *place, T *y, const RtRoute s)
{
    const RtRouted own = rt_routed(chosen, place, s);
    if (own.exists)
        rt_route_copy<WIDTH, T>(own.slot >= 0 ? x + own.slot : NULL, y + own.token, s.post);
}

/* y[g, i, j] = the sum over n of weight[g, i, j, n] x[g, chosen, place], in order.  One warp per row of y. */
template <int WIDTH, typename T>
RT_INLINE void rt_collect(const T *x, const int32_t *chosen, const int32_t *place, const float *weight, float *y,
                          const RtRoute s)
{
    const int64_t item = (int64_t)blockIdx.x * RT_TAKE_WARPS + threadIdx.x / 32, queue = s.outer * s.inner;
    if (item >= s.groups * queue)
        return;
    const int64_t g = item / queue, i = item % queue / s.inner, j = item % s.inner;
    const int32_t *expert = chosen + g * s.chosen.group + i * s.chosen.outer + j * s.chosen.inner;
    const int32_t *slot = place + g * s.place.group + i * s.place.outer + j * s.place.inner;
    const int64_t by = g * s.weight.group + i * s.weight.outer + j * s.weight.inner;
    float *to = y + g * s.token.group + i * s.token.outer + j * s.token.inner;
    for (int64_t n = threadIdx.x % 32 * WIDTH; n < s.post; n += 32 * WIDTH) {
        const int count = (int)rt_least<int64_t>(WIDTH, s.post - n);
        RtPack<float, WIDTH> sum = rt_all<WIDTH>(0.0f);
        for (int64_t c = 0; c < s.added; c++) {
            const int64_t row = rt_route_row(expert[c * s.step.chosen], slot[c * s.step.place], s);
            if (row < 0)
                continue;
            const float times = weight ? weight[by + c * s.step.weight] : 1.0f;
            const RtPack<T, WIDTH> pack = rt_load_some<WIDTH>(x + g * s.table.group + row + n, count);
#pragma unroll
            for (int e = 0; e < WIDTH; e++)
                sum[e] += times * rt_value(pack[e]);
        }
        rt_store_some(to + n, sum, count);
    }
}

#endif
