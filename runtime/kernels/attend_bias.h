/* attend_bias.h -- the gradient of the bias of attention: what attend_grad.h computes for scores, summed over the dims
 * that the bias lacks.
 *
 * share [B, S, H, G], f32: dy . y of each query, of which the gradient of softmax subtracts the weighted mean.
 */
#ifndef MPC_KERNELS_ATTEND_BIAS_H
#define MPC_KERNELS_ATTEND_BIAS_H

#include "attend_grad.h"

/* The operands of the gradient. */
typedef struct {
    const char *q, *k, *v, *dy;
    const float *share, *lse, *bias;
    const int32_t *query_segment, *key_segment;
} RtBiasGrad;

/* sum[queries, 64 keys] += the gradients of the scores of two tiles of one head. */
RT_INLINE void rt_attend_bias_tile(const RtBiasGrad x, float *sum, int64_t b, int64_t h, int64_t g, int64_t query,
                                   int64_t key, const RtAttend s)
{
    enum { TILE = RT_ATTEND_TILE };
    const int64_t width = rt_whole_vectors(s.feature), size = s.type == RT_F32 ? 4 : 2;
    const int64_t rows = s.queries - query < TILE ? s.queries - query : TILE;
    const int64_t columns = s.keys - key < TILE ? s.keys - key : TILE, lanes = rt_whole_vectors(columns);
    const RtSegments segments = rt_segments_of(x.query_segment, x.key_segment, b, h, s);
    int64_t first, end;
    rt_attend_range(query, rows, s, &first, &end);
    if (key + columns <= first || key >= end || rt_segments_meet(segments, query, rows, key, columns, s) == RT_NEVER)
        return;
    float turned[s.feature * TILE] RT_ALIGNED, row[TILE * width] RT_ALIGNED, share[TILE];
    float weight[TILE * TILE] RT_ALIGNED, gradient[TILE * TILE] RT_ALIGNED, slope[TILE * TILE] RT_ALIGNED;
    rt_attend_transpose(x.k + (b * s.k.batch + h * s.k.head + key * s.k.row) * size, s.k.row, columns, s.feature, 1.0f,
                        turned, s.type);
    rt_attend_load(x.q + (b * s.q.batch + h * s.q.head + g * s.q.group + query * s.q.row) * size, s.q.row, rows,
                   s.feature, width, row, s.type);
    rt_tile_product(rows, lanes, s.feature, row, width, 1, turned, TILE, weight, TILE, false);
    rt_attend_transpose(x.v + (b * s.v.batch + h * s.v.head + key * s.v.row) * size, s.v.row, columns, s.feature, 1.0f,
                        turned, s.type);
    rt_attend_load(x.dy + (b * s.dy.batch + h * s.dy.head + g * s.dy.group + query * s.dy.row) * size, s.dy.row, rows,
                   s.feature, width, row, s.type);
    rt_tile_product(rows, lanes, s.feature, row, width, 1, turned, TILE, gradient, TILE, false);
    for (int64_t i = 0; i < rows; i++)
        share[i] = x.share[b * s.share.batch + h * s.share.head + g * s.share.group + (query + i) * s.share.row];
    rt_attend_grad_shape(weight, slope, rt_bias_of(x.bias, b, h, g, s), query, rows, key, columns, s);
    rt_attend_grad_mask(weight, query, rows, key, columns, segments, s);
    rt_attend_grad_scores(weight, gradient,
                          x.lse + b * s.lse.batch + h * s.lse.head + g * s.lse.group + query * s.lse.row, s.lse.row,
                          share, rows, lanes, 1.0f);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            sum[i * TILE + j] += gradient[i * TILE + j];
}

/* Of `count` elements, those that a task sums: its own one, or all, of a dim that the bias lacks. */
typedef struct {
    int64_t from, end;
} RtBiasSpan;

RT_INLINE RtBiasSpan rt_bias_span(int64_t stride, int64_t at, int64_t count)
{
    return stride ? (RtBiasSpan){ at, at + 1 } : (RtBiasSpan){ 0, count };
}

/* The gradients of one tile of the bias. */
RT_INLINE void rt_attend_bias_task(const RtBiasGrad x, float *dbias, int64_t b, int64_t h, int64_t g, int64_t query,
                                   int64_t key, const RtAttend s)
{
    enum { TILE = RT_ATTEND_TILE };
    float sum[TILE * TILE] RT_ALIGNED = { 0 };
    const RtBiasSpan batch = rt_bias_span(s.dbias.batch, b, s.batch), head = rt_bias_span(s.dbias.head, h, s.heads);
    const RtBiasSpan group = rt_bias_span(s.dbias.group, g, s.group);
    const int64_t last = s.dbias.row ? query + 1 : s.queries;
    for (b = batch.from; b < batch.end; b++)
        for (h = head.from; h < head.end; h++)
            for (g = group.from; g < group.end; g++)
                for (int64_t from = s.dbias.row ? query : 0; from < last; from += TILE)
                    rt_attend_bias_tile(x, sum, b, h, g, from, key, s);
    for (int64_t i = 1; i < TILE && !s.dbias.row; i++)
        for (int64_t j = 0; j < TILE; j++)
            sum[j] += sum[i * TILE + j];
    dbias += batch.from * s.dbias.batch + head.from * s.dbias.head + group.from * s.dbias.group;
    for (int64_t i = 0; i < (s.dbias.row ? TILE : 1) && query + i < s.queries; i++)
        for (int64_t j = 0; j < TILE && key + j < s.keys; j++)
            dbias[(query + i) * s.dbias.row + (key + j) * s.dbias.key] = sum[i * TILE + j];
}

/* Order: parallel over tiles of the bias, each written by one thread. */
RT_KERNEL void rt_attend_bias_grad(const void *q, const void *k, const void *v, const float *share, const float *lse,
                                   const void *dy, const float *bias, const int32_t *query_segment,
                                   const int32_t *key_segment, float *dbias, const RtAttend s)
{
    const RtBiasGrad x = { q, k, v, dy, share, lse, bias, query_segment, key_segment };
    const int64_t batch = s.dbias.batch ? s.batch : 1, heads = s.dbias.head ? s.heads : 1;
    const int64_t group = s.dbias.group ? s.group : 1, rows = s.dbias.row ? s.queries : 1;
#pragma omp parallel for collapse(5) schedule(dynamic, 1)
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t g = 0; g < group; g++)
                for (int64_t query = 0; query < rows; query += RT_ATTEND_TILE)
                    for (int64_t key = 0; key < s.keys; key += RT_ATTEND_TILE)
                        rt_attend_bias_task(x, dbias, b, h, g, query, key, s);
}

#endif
