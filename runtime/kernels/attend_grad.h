/* attend_grad.h -- the gradients of attend.h: weights are computed again from the saved log-sum-exp. */
#ifndef MPC_KERNELS_ATTEND_GRAD_H
#define MPC_KERNELS_ATTEND_GRAD_H

#include "attend.h"

/* Bytes of scratch: dq is added up over tiles of keys, in f32. */
RT_INLINE int64_t rt_attend_grad_scratch(const RtAttend s)
{
    return s.batch * s.heads * s.group * s.queries * s.feature * (int64_t)sizeof(float);
}

/* Weights and the gradients of scores, from scores and weight gradients, in place. */
RT_INLINE void rt_attend_grad_scores(float *score, float *gradient, const float *lse, int64_t lse_row,
                                     const float *output_share, int64_t rows, float scale)
{
    for (int64_t i = 0; i < rows; i++) {
        float *p = score + i * RT_ATTEND_TILE, *d = gradient + i * RT_ATTEND_TILE;
        const float level = lse[i * lse_row], share = output_share[i];
        if (level == -INFINITY) { /* this query sees nothing */
            for (int64_t j = 0; j < RT_ATTEND_TILE; j++)
                p[j] = d[j] = 0;
            continue;
        }
#pragma omp simd
        for (int64_t j = 0; j < RT_ATTEND_TILE; j++) {
            p[j] = rt_exp_negative(p[j] - level);
            d[j] = p[j] * (d[j] - share) * scale;
        }
    }
}

/* All of one head of k and v, with the heads of q that belong to it. */
RT_INLINE void rt_attend_grad_head(const char *q, const char *k, const char *v, const char *y, const float *lse,
                                   const char *dy, char *dq, char *dk, char *dv, float *scratch, const RtAttend s)
{
    enum { TILE = RT_ATTEND_TILE };
    const int64_t width = (s.feature + RT_LANES - 1) / RT_LANES * RT_LANES, size = s.type == RT_F32 ? 4 : 2;
    float keys[TILE * width], values[TILE * width], keys_turned[s.feature * TILE], values_turned[s.feature * TILE];
    float queries[TILE * width], outputs[TILE * width], weight[TILE * TILE], gradient[TILE * TILE], share[TILE];
    float key_sum[TILE * width], value_sum[TILE * width], query_sum[TILE * width];
    for (int64_t i = 0; i < s.group * s.queries * s.feature; i++)
        scratch[i] = 0;
    for (int64_t key = 0; key < s.keys; key += TILE) {
        const int64_t columns = s.keys - key < TILE ? s.keys - key : TILE;
        rt_attend_load(k + key * s.k.row * size, s.k.row, columns, s.feature, width, keys, s.type);
        rt_attend_load(v + key * s.v.row * size, s.v.row, columns, s.feature, width, values, s.type);
        rt_attend_turn(keys, columns, s.feature, width, keys_turned);
        rt_attend_turn(values, columns, s.feature, width, values_turned);
        for (int64_t i = 0; i < TILE * width; i++)
            key_sum[i] = value_sum[i] = 0;
        for (int64_t g = 0; g < s.group; g++)
            for (int64_t query = 0; query < s.queries; query += TILE) {
                const int64_t rows = s.queries - query < TILE ? s.queries - query : TILE;
                int64_t first, end;
                rt_attend_range(query, rows, s, &first, &end);
                if (key < first || key >= end)
                    continue;
                const int64_t at = g * s.lse.group + query * s.lse.row;
                rt_attend_load(q + (g * s.q.group + query * s.q.row) * size, s.q.row, rows, s.feature, width, queries,
                               s.type);
                rt_attend_load(dy + (g * s.dy.group + query * s.dy.row) * size, s.dy.row, rows, s.feature, width,
                               outputs, s.type);
                for (int64_t i = 0; i < rows; i++) { /* what softmax's gradient takes off: the sum of dy y */
                    float sum = 0;
#pragma omp simd reduction(+ : sum)
                    for (int64_t d = 0; d < s.feature; d++)
                        sum += outputs[i * width + d] * rt_load(y, g * s.y.group + (query + i) * s.y.row + d, s.type);
                    share[i] = sum;
                }
                rt_tile_product(rows, TILE, s.feature, queries, width, 1, keys_turned, TILE, weight, TILE, false);
                rt_tile_product(rows, TILE, s.feature, outputs, width, 1, values_turned, TILE, gradient, TILE, false);
                rt_attend_mask(weight, query, rows, key, columns, s);
                rt_attend_grad_scores(weight, gradient, lse + at, s.lse.row, share, rows, s.scale);
                rt_tile_product(columns, width, rows, weight, 1, TILE, outputs, width, value_sum, width, true);
                rt_tile_product(columns, width, rows, gradient, 1, TILE, queries, width, key_sum, width, true);
                rt_tile_product(rows, width, columns, gradient, TILE, 1, keys, width, query_sum, width, false);
                float *to = scratch + (g * s.queries + query) * s.feature;
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t d = 0; d < s.feature; d++)
                        to[i * s.feature + d] += query_sum[i * width + d];
            }
        for (int64_t j = 0; j < columns; j++)
            for (int64_t d = 0; d < s.feature; d++) {
                rt_store(dk, (key + j) * s.dk.row + d, key_sum[j * width + d], s.type);
                rt_store(dv, (key + j) * s.dv.row + d, value_sum[j * width + d], s.type);
            }
    }
    for (int64_t g = 0; g < s.group; g++)
        for (int64_t query = 0; query < s.queries; query++)
            for (int64_t d = 0; d < s.feature; d++)
                rt_store(dq, g * s.dq.group + query * s.dq.row + d, scratch[(g * s.queries + query) * s.feature + d],
                         s.type);
}

/* Order: parallel over heads of k and v; within one, tiles of keys, then heads of q, then tiles of queries. */
RT_INLINE void rt_attend_grad(const void *q, const void *k, const void *v, const void *y, const float *lse,
                              const void *dy, void *dq, void *dk, void *dv, void *scratch, const RtAttend s)
{
    const int64_t size = s.type == RT_F32 ? 4 : 2, head = s.group * s.queries * s.feature;
#pragma omp parallel for collapse(2) schedule(dynamic, 1)
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.heads; h++)
            rt_attend_grad_head(
                (const char *)q + (b * s.q.batch + h * s.q.head) * size,
                (const char *)k + (b * s.k.batch + h * s.k.head) * size,
                (const char *)v + (b * s.v.batch + h * s.v.head) * size,
                (const char *)y + (b * s.y.batch + h * s.y.head) * size, lse + b * s.lse.batch + h * s.lse.head,
                (const char *)dy + (b * s.dy.batch + h * s.dy.head) * size,
                (char *)dq + (b * s.dq.batch + h * s.dq.head) * size,
                (char *)dk + (b * s.dk.batch + h * s.dk.head) * size,
                (char *)dv + (b * s.dv.batch + h * s.dv.head) * size, (float *)scratch + (b * s.heads + h) * head, s);
}

#endif
