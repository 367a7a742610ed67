/* attend.h -- softmax(scale q k^T) v without a stored [queries, keys] matrix: tiles and an online softmax
 * (Dao, "FlashAttention-2", arXiv 2307.08691, algorithms 1 and 2).
 *
 * Letters: B sequences, S queries, T keys, H heads of k and v, G queries' heads for each of these, D features.
 * q, y, dq, dy [B, S, H, G, D]; k, v, dk, dv [B, T, H, D]; lse [B, S, H, G], f32; the stride of D is 1.  Segments, if
 * any: of queries [B, S, H], of keys [B, T, H]; a query sees the keys of its own segment.  A bias [B, S, H, G, T] may
 * lack dims; sinks [B, H, G].
 */
#ifndef MPC_KERNELS_ATTEND_H
#define MPC_KERNELS_ATTEND_H

#include "shape.h"
#include "tile.h"

enum { RT_ATTEND_TILE = 64 }; /* queries and keys at a time */

/* exp(x) for x <= 0, within 2 units in the last place; 0 below -87; vectorises on any machine. */
RT_INLINE float rt_exp_negative(float x)
{
    const float clamped = x < -87.0f ? -87.0f : x;
    const float shifted = clamped * 1.44269504f + 12582912.0f; /* the nearest integer, in the low bits */
    const float n = shifted - 12582912.0f;
    const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const float scaled = rt_float_of_bits(rt_bits_of_float(p) + (rt_bits_of_float(shifted) << 23));
    return x < -87.0f ? 0.0f : scaled;
}

/* tanh(x), within 4 units in the last place: by exponentials, and near 0, where these would cancel, by the polynomial
 * of Cephes (Moshier, tanhf.c). */
RT_INLINE float rt_tanh(float x)
{
    const float size = x < 0 ? -x : x, square = x * x, power = rt_exp_negative(-2.0f * size);
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const float far = (1.0f - power) / (1.0f + power);
    return size < 0.625f ? p * square * x + x : x < 0 ? -far : far;
}

/* The number of keys before a position. */
RT_INLINE int64_t rt_attend_keys_before(int64_t position, const RtAttend s)
{
    return rt_elements_before(s.key_part, position, s.keys);
}

/* The range of keys that the queries of a tile may see. */
RT_INLINE void rt_attend_range(int64_t query, int64_t rows, const RtAttend s, int64_t *first, int64_t *end)
{
    const int64_t low = rt_attend_position(query, s), high = rt_attend_position(query + rows - 1, s);
    const int64_t before = s.window ? rt_attend_keys_before(low - s.window + 1, s) : 0;
    *first = before / RT_ATTEND_TILE * RT_ATTEND_TILE;
    *end = s.causal   ? rt_attend_keys_before(high + 1, s)
           : s.window ? rt_attend_keys_before(high + s.window, s)
                      : s.keys;
}

/* Does every query of the tile see every key of it? */
RT_INLINE bool rt_attend_all(int64_t query, int64_t rows, int64_t key, int64_t columns, const RtAttend s)
{
    const int64_t least = rt_attend_key_position(key, s) - rt_attend_position(query + rows - 1, s);
    const int64_t most = rt_attend_key_position(key + columns - 1, s) - rt_attend_position(query, s);
    return (!s.causal || most <= 0) && (!s.window || (most < s.window && -least < s.window));
}

/* The segments of a head; NULL: there are none. */
typedef struct {
    const int32_t *query, *key;
} RtSegments;

RT_INLINE RtSegments rt_segments_of(const int32_t *query, const int32_t *key, int64_t b, int64_t h, const RtAttend s)
{
    if (!query)
        return (RtSegments){ 0 };
    return (RtSegments){ query + b * s.query_segment.batch + h * s.query_segment.head,
                         key + b * s.key_segment.batch + h * s.key_segment.head };
}

/* Are no, some or all pairs of the queries and keys of one segment?  By the least and the greatest of each, which is
 * exact where segments follow each other. */
typedef enum { RT_NEVER, RT_SOMETIMES, RT_ALWAYS } RtMeet;

RT_INLINE RtMeet rt_segments_meet(const RtSegments of, int64_t query, int64_t rows, int64_t key, int64_t columns,
                                  const RtAttend s)
{
    if (!of.query)
        return RT_ALWAYS;
    const int64_t q = s.query_segment.row, k = s.key_segment.row;
    int32_t q_low = of.query[query * q], q_high = q_low, k_low = of.key[key * k], k_high = k_low;
    for (int64_t i = 1; i < rows; i++) {
        const int32_t one = of.query[(query + i) * q];
        q_low = one < q_low ? one : q_low, q_high = one > q_high ? one : q_high;
    }
    for (int64_t j = 1; j < columns; j++) {
        const int32_t one = of.key[(key + j) * k];
        k_low = one < k_low ? one : k_low, k_high = one > k_high ? one : k_high;
    }
    if (q_high < k_low || k_high < q_low)
        return RT_NEVER;
    return q_low == k_high && k_low == q_high ? RT_ALWAYS : RT_SOMETIMES;
}

RT_INLINE bool rt_segments_equal(const RtSegments of, int64_t query, int64_t key, const RtAttend s)
{
    return !of.query || of.query[query * s.query_segment.row] == of.key[key * s.key_segment.row];
}

/* rows x D elements to [rows, width], zeros after D. */
RT_INLINE void rt_attend_load(const void *from, int64_t stride, int64_t rows, int64_t feature, int64_t width,
                              float *tile, RtType type)
{
    for (int64_t i = 0; i < rows; i++) {
        rt_load_row(from, i * stride, feature, type, tile + i * width);
        for (int64_t d = feature; d < width; d++)
            tile[i * width + d] = 0;
    }
}

/* factor * rows x D elements, transposed to [D, 64]; zeros after rows, up to whole vectors. */
RT_INLINE void rt_attend_transpose(const void *from, int64_t stride, int64_t rows, int64_t feature, float factor,
                                   float *turned, RtType type)
{
    float row[feature] RT_ALIGNED;
    for (int64_t i = 0; i < rows; i++) {
        rt_load_row(from, i * stride, feature, type, row);
        for (int64_t d = 0; d < feature; d++)
            turned[d * RT_ATTEND_TILE + i] = factor * row[d];
    }
    for (int64_t i = rows; i < rt_whole_vectors(rows); i++)
        for (int64_t d = 0; d < feature; d++)
            turned[d * RT_ATTEND_TILE + i] = 0;
}

/* The size of the next step: small if some queries do not see some keys, since masked elements are wasted work. */
RT_INLINE int64_t rt_attend_step(int64_t left, bool all)
{
    const int64_t step = all ? RT_ATTEND_TILE : RT_ATTEND_TILE / 2;
    return left < step ? left : step;
}

/* The number of queries of the tile, in whole vectors, that see no key from `key` on. */
RT_INLINE int64_t rt_attend_blind(int64_t query, int64_t key, const RtAttend s)
{
    if (!s.causal && !s.window)
        return 0;
    const int64_t sees =
        rt_attend_key_position(key, s) - (s.causal ? 0 : s.window - 1); /* the first position that does */
    const int64_t count = rt_elements_before(s.query_part, sees, s.queries) - query;
    return count > 0 ? count / RT_LANES * RT_LANES : 0;
}

/* score [keys, 64 queries]: minus infinity where a query does not see a key. */
RT_INLINE void rt_attend_mask(float *score, int64_t query, int64_t rows, int64_t key, int64_t columns,
                              const RtSegments of, const RtAttend s)
{
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            if (!rt_attend_sees(query + i, key + j, s) || !rt_segments_equal(of, query + i, key + j, s))
                score[j * RT_ATTEND_TILE + i] = -INFINITY;
}

/* Scaled scores [keys, 64 queries], of vectors of queries from `blind` on, become those that the softmax takes. */
RT_INLINE void rt_attend_shape(float *score, const float *bias, int64_t query, int64_t rows, int64_t key,
                               int64_t columns, int64_t blind, const RtAttend s)
{
    const float part = s.softcap != 0 ? 1.0f / s.softcap : 0.0f;
    for (int64_t j = 0; j < columns; j++) {
        float *of_key = score + j * RT_ATTEND_TILE;
        if (s.softcap != 0)
#pragma omp simd
            for (int64_t i = blind; i < rows; i++)
                of_key[i] = s.softcap * rt_tanh(of_key[i] * part);
        if (s.has_bias)
            for (int64_t i = blind; i < rows; i++)
                of_key[i] += bias[(query + i) * s.bias.row + (key + j) * s.bias.key];
    }
}

/* A step of the online softmax for a vector of queries: scores become weights; `kept` is the factor for earlier
 * sums. */
RT_INLINE void rt_attend_online(float *score, int64_t columns, float *highest, float *total, float *kept)
{
    float most[RT_LANES], base[RT_LANES], sum[RT_LANES];
    for (int i = 0; i < RT_LANES; i++)
        most[i] = highest[i], sum[i] = 0;
    for (int64_t j = 0; j < columns; j++)
#pragma omp simd
        for (int i = 0; i < RT_LANES; i++) {
            const float x = score[j * RT_ATTEND_TILE + i];
            most[i] = x > most[i] ? x : most[i];
        }
    for (int i = 0; i < RT_LANES; i++)
        base[i] = most[i] == -INFINITY ? 0.0f : most[i]; /* no key seen yet: all weights are 0 */
    for (int64_t j = 0; j < columns; j++)
#pragma omp simd
        for (int i = 0; i < RT_LANES; i++) {
            const float weight = rt_exp_negative(score[j * RT_ATTEND_TILE + i] - base[i]);
            score[j * RT_ATTEND_TILE + i] = weight;
            sum[i] += weight;
        }
#pragma omp simd
    for (int i = 0; i < RT_LANES; i++) {
        kept[i] = rt_exp_negative(highest[i] - base[i]);
        total[i] = total[i] * kept[i] + sum[i];
        highest[i] = most[i];
    }
}

/* y and lse of one tile of queries of one head; `sink`: a logit without a key, or minus infinity.  Scores are [keys,
 * queries]: keys are read in place, queries are transposed once, and a vector holds the scores of 16 queries for one
 * key, so that the softmax needs no sums across a vector. */
RT_INLINE void rt_attend_tile(const char *q, const char *k, const char *v, const float *bias, float sink,
                              const RtSegments segments, char *y, float *lse, int64_t query, const RtAttend s)
{
    enum { TILE = RT_ATTEND_TILE };
    const int64_t width = rt_whole_vectors(s.feature), size = s.type == RT_F32 ? 4 : 2;
    const int64_t rows = s.queries - query < TILE ? s.queries - query : TILE, lanes = rt_whole_vectors(rows);
    float queries[s.feature * TILE] RT_ALIGNED, keys[TILE * width] RT_ALIGNED, values[TILE * width] RT_ALIGNED;
    float sum[TILE * width] RT_ALIGNED, score[TILE * TILE] RT_ALIGNED;
    float highest[TILE] RT_ALIGNED, total[TILE] RT_ALIGNED, kept[TILE] RT_ALIGNED;
    rt_attend_transpose(q + query * s.q.row * size, s.q.row, rows, s.feature, s.scale, queries, s.type);
    for (int64_t i = 0; i < rows * width; i++)
        sum[i] = 0;
    for (int64_t i = 0; i < lanes; i++)
        highest[i] = sink, total[i] = sink > -INFINITY ? 1.0f : 0.0f;
    int64_t key, end, columns;
    rt_attend_range(query, rows, s, &key, &end);
    for (; key < end; key += columns) {
        const int64_t most = end - key < TILE ? end - key : TILE, blind = rt_attend_blind(query, key, s);
        const RtMeet meet = rt_segments_meet(segments, query, rows, key, most, s);
        const bool all = meet == RT_ALWAYS && rt_attend_all(query, rows, key, most, s);
        columns = meet == RT_NEVER ? most : rt_attend_step(most, all);
        if (meet == RT_NEVER)
            continue;
        const char *from = k + key * s.k.row * size;
        if (s.type != RT_F32)
            rt_attend_load(from, s.k.row, columns, s.feature, width, keys, s.type);
        rt_tile_product(columns, lanes - blind, s.feature, s.type == RT_F32 ? (const float *)(const void *)from : keys,
                        s.type == RT_F32 ? s.k.row : width, 1, queries + blind, TILE, score + blind, TILE, false);
        if (rt_attend_shapes(s))
            rt_attend_shape(score, bias, query, rows, key, columns, blind, s);
        if (!all)
            rt_attend_mask(score, query, rows, key, columns, segments, s);
        for (int64_t i = blind; i < lanes; i += RT_LANES)
            rt_attend_online(score + i, columns, highest + i, total + i, kept + i);
        for (int64_t i = blind; i < rows; i++)
            for (int64_t d = 0; d < width; d++)
                sum[i * width + d] *= kept[i];
        rt_attend_load(v + key * s.v.row * size, s.v.row, columns, s.feature, width, values, s.type);
        rt_tile_product(rows - blind, width, columns, score + blind, 1, TILE, values, width, sum + blind * width, width,
                        true);
    }
    for (int64_t i = 0; i < rows; i++) {
        const float share = total[i] > 0 ? 1.0f / total[i] : 0.0f;
        for (int64_t d = 0; d < s.feature; d++)
            sum[i * width + d] *= share;
        rt_store_row(y, (query + i) * s.y.row, s.feature, s.type, sum + i * width);
        lse[(query + i) * s.lse.row] = highest[i] + logf(total[i]);
    }
}

/* y = softmax(scale q k^T) v, and the logarithm of each row's sum of exponentials.  A query that sees no key gets
 * zeros.  Order: parallel over tiles of queries, each written by one thread. */
RT_KERNEL void rt_attend(const void *q, const void *k, const void *v, const float *bias, const float *sinks,
                         const int32_t *query_segment, const int32_t *key_segment, void *y, float *lse,
                         const RtAttend s)
{
    const int64_t size = s.type == RT_F32 ? 4 : 2, tiles = (s.queries + RT_ATTEND_TILE - 1) / RT_ATTEND_TILE;
#pragma omp parallel for collapse(4) schedule(dynamic, 1)
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t g = 0; g < s.group; g++)
                for (int64_t tile = 0; tile < tiles; tile++)
                    rt_attend_tile((const char *)q + (b * s.q.batch + h * s.q.head + g * s.q.group) * size,
                                   (const char *)k + (b * s.k.batch + h * s.k.head) * size,
                                   (const char *)v + (b * s.v.batch + h * s.v.head) * size,
                                   rt_bias_of(bias, b, h, g, s), sinks ? rt_sink_of(sinks, b, h, g, s) : -INFINITY,
                                   rt_segments_of(query_segment, key_segment, b, h, s),
                                   (char *)y + (b * s.y.batch + h * s.y.head + g * s.y.group) * size,
                                   lse + b * s.lse.batch + h * s.lse.head + g * s.lse.group, tile * RT_ATTEND_TILE, s);
}

#endif
