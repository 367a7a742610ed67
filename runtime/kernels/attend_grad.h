/* attend_grad.h -- the gradients of attend.h: weights are recomputed from the saved log-sum-exp. */
#ifndef MPC_KERNELS_ATTEND_GRAD_H
#define MPC_KERNELS_ATTEND_GRAD_H

#include "attend.h"

/* Bytes of scratch: dq is summed over tiles of keys, in f32. */
RT_INLINE int64_t rt_attend_grad_scratch(const RtAttend s)
{
    return s.batch * s.heads * s.group * s.queries * s.feature * (int64_t)sizeof(float);
}

/* Scores [queries, 64 keys] to minus infinity where a query does not see a key. */
RT_INLINE void rt_attend_grad_mask(float *score, int64_t query, int64_t rows, int64_t key, int64_t columns,
                                   const RtSegments segments, const RtAttend s)
{
    if (rt_attend_all(query, rows, key, columns, s) &&
        rt_segments_meet(segments, query, rows, key, columns, s) == RT_ALWAYS)
        return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            if (!rt_attend_sees(query + i, key + j, s) || !rt_segments_equal(segments, query + i, key + j, s))
                score[i * RT_ATTEND_TILE + j] = -INFINITY;
}

/* Products [queries, 64 keys] become the scores that the softmax takes, and their derivatives by the products. */
RT_INLINE void rt_attend_grad_shape(float *score, float *slope, const float *bias, int64_t query, int64_t rows,
                                    int64_t key, int64_t columns, const RtAttend s)
{
    const float part = s.softcap != 0 ? s.scale / s.softcap : 0.0f;
    for (int64_t i = 0; i < rows; i++) {
        float *row = score + i * RT_ATTEND_TILE, *slopes = slope + i * RT_ATTEND_TILE;
#pragma omp simd
        for (int64_t j = 0; j < columns; j++) {
            const float capped = s.softcap != 0 ? rt_tanh(row[j] * part) : 0.0f;
            row[j] = s.softcap != 0 ? s.softcap * capped : row[j] * s.scale;
            slopes[j] = s.scale * (1.0f - capped * capped);
        }
        if (s.has_bias)
            for (int64_t j = 0; j < columns; j++)
                row[j] += bias[(query + i) * s.bias.row + (key + j) * s.bias.key];
    }
}

RT_INLINE void rt_attend_grad_slopes(float *gradient, const float *slope, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < columns; j++)
            gradient[i * RT_ATTEND_TILE + j] *= slope[i * RT_ATTEND_TILE + j];
}

/* In place: weights from scores, and gradients of scores from gradients of weights. */
RT_INLINE void rt_attend_grad_scores(float *score, float *gradient, const float *lse, int64_t lse_row,
                                     const float *share, int64_t rows, int64_t lanes, float scale)
{
    for (int64_t i = 0; i < rows; i++) {
        float *p = score + i * RT_ATTEND_TILE, *d = gradient + i * RT_ATTEND_TILE;
        const float level = lse[i * lse_row] == -INFINITY ? 0.0f : lse[i * lse_row]; /* sees no key: weights are 0 */
#pragma omp simd
        for (int64_t j = 0; j < lanes; j++) {
            const float power = p[j] * scale - level; /* above 0 by rounding only */
            p[j] = rt_exp_negative(power > 0 ? 0.0f : power);
            d[j] = p[j] * (d[j] - share[i]) * scale;
        }
    }
}

/* share[i] = dy_i . y_i, which the gradient of softmax subtracts; dy [rows, width]. */
RT_INLINE void rt_attend_grad_share(const float *dy, int64_t width, const void *y, int64_t stride, int64_t rows,
                                    float *share, const RtAttend s)
{
    float row[s.feature] RT_ALIGNED;
    for (int64_t i = 0; i < rows; i++) {
        float sum = 0;
        rt_load_row(y, i * stride, s.feature, s.type, row);
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < s.feature; d++)
            sum += dy[i * width + d] * row[d];
        share[i] = sum;
    }
}

/* to[rows, D] += dS[rows, columns] K[columns, D] */
RT_INLINE void rt_attend_grad_queries(const float *gradient, int64_t rows, int64_t columns, const float *keys,
                                      int64_t width, float *to, int64_t feature)
{
    if (width == feature) {
        rt_tile_product(rows, width, columns, gradient, RT_ATTEND_TILE, 1, keys, width, to, feature, true);
        return;
    }
    float sum[RT_ATTEND_TILE * width] RT_ALIGNED;
    rt_tile_product(rows, width, columns, gradient, RT_ATTEND_TILE, 1, keys, width, sum, width, false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < feature; d++)
            to[i * feature + d] += sum[i * width + d];
}

/* One head of k and v, with the heads of q in its group. */
RT_INLINE void rt_attend_grad_head(const char *q, const char *k, const char *v, const char *y, const float *lse,
                                   const char *dy, const float *bias, const RtSegments segments, char *dq, char *dk,
                                   char *dv, float *scratch, const RtAttend s)
{
    enum { TILE = RT_ATTEND_TILE };
    const int64_t width = rt_whole_vectors(s.feature), size = s.type == RT_F32 ? 4 : 2;
    float keys[TILE * width] RT_ALIGNED, keys_turned[s.feature * TILE] RT_ALIGNED;
    float values_turned[s.feature * TILE] RT_ALIGNED;
    float queries[TILE * width] RT_ALIGNED, outputs[TILE * width] RT_ALIGNED, share[TILE];
    float weight[TILE * TILE] RT_ALIGNED, gradient[TILE * TILE] RT_ALIGNED;
    float slope[rt_attend_shapes(s) ? TILE * TILE : 1] RT_ALIGNED;
    float key_sum[TILE * width] RT_ALIGNED, value_sum[TILE * width] RT_ALIGNED;
    for (int64_t i = 0; i < s.group * s.queries * s.feature; i++)
        scratch[i] = 0;
    for (int64_t key = 0; key < s.keys; key += TILE) {
        const int64_t tile = s.keys - key < TILE ? s.keys - key : TILE;
        rt_attend_load(k + key * s.k.row * size, s.k.row, tile, s.feature, width, keys, s.type);
        rt_attend_transpose(k + key * s.k.row * size, s.k.row, tile, s.feature, 1.0f, keys_turned, s.type);
        rt_attend_transpose(v + key * s.v.row * size, s.v.row, tile, s.feature, 1.0f, values_turned, s.type);
        for (int64_t i = 0; i < TILE * width; i++)
            key_sum[i] = value_sum[i] = 0;
        for (int64_t g = 0; g < s.group; g++)
            for (int64_t query = 0, rows; query < s.queries; query += rows) {
                const int64_t left = s.queries - query < TILE ? s.queries - query : TILE;
                const RtMeet meet = rt_segments_meet(segments, query, left, key, tile, s);
                rows = rt_attend_step(left, meet == RT_ALWAYS && rt_attend_all(query, left, key, tile, s));
                int64_t first, end;
                rt_attend_range(query, rows, s, &first, &end);
                if (meet == RT_NEVER || key + tile <= first || key >= end)
                    continue;
                const int64_t columns = end - key < tile ? end - key : tile, lanes = rt_whole_vectors(columns);
                const int64_t at = g * s.lse.group + query * s.lse.row;
                rt_attend_load(q + (g * s.q.group + query * s.q.row) * size, s.q.row, rows, s.feature, width, queries,
                               s.type);
                rt_attend_load(dy + (g * s.dy.group + query * s.dy.row) * size, s.dy.row, rows, s.feature, width,
                               outputs, s.type);
                rt_attend_grad_share(outputs, width, y + (g * s.y.group + query * s.y.row) * size, s.y.row, rows, share,
                                     s);
                rt_tile_product(rows, lanes, s.feature, queries, width, 1, keys_turned, TILE, weight, TILE, false);
                rt_tile_product(rows, lanes, s.feature, outputs, width, 1, values_turned, TILE, gradient, TILE, false);
                if (rt_attend_shapes(s))
                    rt_attend_grad_shape(weight, slope, s.has_bias ? bias + g * s.bias.group : bias, query, rows, key,
                                         columns, s);
                rt_attend_grad_mask(weight, query, rows, key, columns, segments, s);
                rt_attend_grad_scores(weight, gradient, lse + at, s.lse.row, share, rows, lanes,
                                      rt_attend_shapes(s) ? 1.0f : s.scale);
                if (rt_attend_shapes(s))
                    rt_attend_grad_slopes(gradient, slope, rows, columns);
                rt_tile_product(columns, width, rows, weight, 1, TILE, outputs, width, value_sum, width, true);
                rt_tile_product(columns, width, rows, gradient, 1, TILE, queries, width, key_sum, width, true);
                rt_attend_grad_queries(gradient, rows, columns, keys, width,
                                       scratch + (g * s.queries + query) * s.feature, s.feature);
            }
        for (int64_t j = 0; j < tile; j++) {
            rt_store_row(dk, (key + j) * s.dk.row, s.feature, s.type, key_sum + j * width);
            rt_store_row(dv, (key + j) * s.dv.row, s.feature, s.type, value_sum + j * width);
        }
    }
    for (int64_t g = 0; g < s.group; g++)
        for (int64_t query = 0; query < s.queries; query++)
            rt_store_row(dq, g * s.dq.group + query * s.dq.row, s.feature, s.type,
                         scratch + (g * s.queries + query) * s.feature);
}

/* Order: parallel over heads of k and v; within one, tiles of keys, then heads of q, then tiles of queries. */
RT_KERNEL void rt_attend_grad(const void *q, const void *k, const void *v, const void *y, const float *lse,
                              const void *dy, const float *bias, const int32_t *query_segment,
                              const int32_t *key_segment, void *dq, void *dk, void *dv, void *scratch, const RtAttend s)
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
                (const char *)dy + (b * s.dy.batch + h * s.dy.head) * size, rt_bias_of(bias, b, h, 0, s),
                rt_segments_of(query_segment, key_segment, b, h, s),
                (char *)dq + (b * s.dq.batch + h * s.dq.head) * size,
                (char *)dk + (b * s.dk.batch + h * s.dk.head) * size,
                (char *)dv + (b * s.dv.batch + h * s.dv.head) * size, (float *)scratch + (b * s.heads + h) * head, s);
}

#endif
