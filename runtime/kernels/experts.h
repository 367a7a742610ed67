/* experts.h -- mixtures of experts: the choice of experts, places in their queues, rows to and from their slots. */
#ifndef MPC_KERNELS_EXPERTS_H
#define MPC_KERNELS_EXPERTS_H

#include "gather.h"

/* y[row, c] = the place of the (c + 1)-th largest element: the first in order behind the one before. */
RT_INLINE void rt_top_k_row(const void *x, int64_t at, int32_t *y, const RtTopK s)
{
    float last = 0;
    int64_t last_at = -1;
    for (int64_t c = 0; c < s.choices; c++) {
        float best = 0;
        int64_t best_at = -1;
        for (int64_t i = 0; i < s.count; i++) {
            float own;
            rt_load_row(x, at + i * s.x.element, 1, s.type, &own);
            const bool is_left = last_at < 0 || rt_is_ahead(last, last_at, own, i);
            if (is_left && (best_at < 0 || rt_is_ahead(own, i, best, best_at)))
                best = own, best_at = i;
        }
        y[c * s.y.element] = (int32_t)best_at;
        last = best;
        last_at = best_at;
    }
}

RT_KERNEL void rt_top_k(const void *x, int32_t *y, const RtTopK s)
{
#pragma omp parallel for collapse(2)
    for (int64_t i = 0; i < s.outer; i++)
        for (int64_t j = 0; j < s.inner; j++)
            rt_top_k_row(x, i * s.x.outer + j * s.x.inner, y + i * s.y.outer + j * s.y.inner, s);
}

/* place[n] = the number of earlier elements equal to chosen[n]: in order, with a counter for each of some experts at a
 * time. */
RT_INLINE void rt_place_queue(const int32_t *chosen, int32_t *place, const RtQueueShape s)
{
    enum { COUNTERS = 1024 };
    int32_t count[COUNTERS];
    for (int64_t first = 0; first < s.experts; first += COUNTERS) {
        memset(count, 0, sizeof count);
        for (int64_t n = 0; n < s.count; n++) {
            const int64_t expert = chosen[n] - first;
            if (expert >= 0 && expert < COUNTERS)
                place[n] = count[expert]++;
        }
    }
    for (int64_t n = 0; n < s.count; n++)
        if (chosen[n] < 0 || chosen[n] >= s.experts) {
            place[n] = -1;
            if (rt_index_out_of_range)
                rt_index_out_of_range(chosen[n], s.experts, s.dim, s.where);
        }
}

RT_KERNEL void rt_place(const int32_t *chosen, int32_t *place, const RtQueueShape s)
{
#pragma omp parallel for
    for (int64_t g = 0; g < s.groups; g++)
        rt_place_queue(chosen + g * s.chosen, place + g * s.place, s);
}

RT_INLINE int64_t rt_route_at(RtRouteStride stride, int64_t g, int64_t i, int64_t j)
{
    return g * stride.group + i * stride.outer + j * stride.inner;
}

/* The row in the experts' slots of that token, as rt_route_row has it. */
RT_INLINE int64_t rt_route_of(const int32_t *chosen, const int32_t *place, int64_t g, int64_t i, int64_t j,
                              const RtRoute s)
{
    return rt_route_row(chosen[rt_route_at(s.chosen, g, i, j)], place[rt_route_at(s.place, g, i, j)], s);
}

/* y[g, chosen, place] = x[g, i, j], else 0.  No two rows have one place. */
RT_KERNEL void rt_dispatch(const void *x, const int32_t *chosen, const int32_t *place, void *y, const RtRoute s)
{
#pragma omp parallel for collapse(3)
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t e = 0; e < s.experts; e++)
            for (int64_t n = 0; n < s.slots; n++)
                rt_gather_row(NULL, 0, s.type, y, g * s.table.group + e * s.table.expert + n * s.table.slot, s.type,
                              s.post, false);
#pragma omp parallel for collapse(3)
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t i = 0; i < s.outer; i++)
            for (int64_t j = 0; j < s.inner; j++) {
                const int64_t row = rt_route_of(chosen, place, g, i, j, s);
                if (row >= 0)
                    rt_gather_row(x, rt_route_at(s.token, g, i, j), s.type, y, g * s.table.group + row, s.type, s.post,
                                  false);
            }
}

/* y[g, i, j] = x[g, chosen, place], or 0. */
RT_KERNEL void rt_combine(const void *x, const int32_t *chosen, const int32_t *place, void *y, const RtRoute s)
{
#pragma omp parallel for collapse(3)
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t i = 0; i < s.outer; i++)
            for (int64_t j = 0; j < s.inner; j++) {
                const int64_t row = rt_route_of(chosen, place, g, i, j, s);
                rt_gather_row(row >= 0 ? x : NULL, g * s.table.group + (row >= 0 ? row : 0), s.type, y,
                              rt_route_at(s.token, g, i, j), s.type, s.post, false);
            }
}

/* y[n] += weight x[n] for a chunk of a row. */
RT_INLINE void rt_collect_row(const void *x, int64_t at, int64_t n, float weight, float *sum, const RtRoute s)
{
    float row[RT_TAKE_CHUNK];
    rt_load_row(x, at, n, s.type, row);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] += weight * row[i];
}

/* y[g, i, j] = the sum over n of weight[g, i, j, n] x[g, chosen, place], in order: dropped rows add nothing. */
RT_KERNEL void rt_collect(const void *x, const int32_t *chosen, const int32_t *place, const float *weight, float *y,
                          const RtRoute s)
{
#pragma omp parallel for collapse(3)
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t i = 0; i < s.outer; i++)
            for (int64_t j = 0; j < s.inner; j++) {
                const int32_t *expert = chosen + rt_route_at(s.chosen, g, i, j);
                const int32_t *slot = place + rt_route_at(s.place, g, i, j);
                const int64_t by = rt_route_at(s.weight, g, i, j);
                for (int64_t at = 0; at < s.post; at += RT_TAKE_CHUNK) {
                    const int64_t n = s.post - at < RT_TAKE_CHUNK ? s.post - at : RT_TAKE_CHUNK;
                    float sum[RT_TAKE_CHUNK];
                    memset(sum, 0, (size_t)n * sizeof *sum);
                    for (int64_t c = 0; c < s.added; c++) {
                        const int64_t row = rt_route_row(expert[c * s.step.chosen], slot[c * s.step.place], s);
                        if (row >= 0)
                            rt_collect_row(x, g * s.table.group + row + at, n,
                                           weight ? weight[by + c * s.step.weight] : 1, sum, s);
                    }
                    rt_store_row(y, rt_route_at(s.token, g, i, j) + at, n, RT_F32, sum);
                }
            }
}

#endif
