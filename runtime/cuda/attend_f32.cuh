/* attend_f32.cuh -- attention and its gradients for f32 models: the kernels of attend.cuh and attend_grad.cuh with
 * plain f32 arithmetic, since tensor cores would round operands.
 *
 * A block has 16 x 16 threads; thread (y, x) has rows y, y + 16, ... and columns x, x + 16, ... of each tile.
 */
#ifndef MPC_CUDA_ATTEND_F32_H
#define MPC_CUDA_ATTEND_F32_H

#include "attend_grad.cuh"

/* Queries and keys of a tile; the pitch of a row. */
template <int D> struct RtPlainTiles {
    static constexpr int TILE = D <= 64    ? 64
                                : D <= 176 ? 32
                                           : 16,
                         EACH = TILE / 16, FEATURES = (D + 15) / 16, PITCH = D + 1;
    static constexpr int SCORES = TILE + 1;
    static constexpr int BYTES = (3 * TILE * PITCH + TILE * SCORES) * 4;
    static constexpr int GRAD_BYTES = (4 * TILE * PITCH + 2 * TILE * SCORES) * 4;
};

template <int D, typename T>
RT_INLINE void rt_plain_load(float *tile, const T *from, int64_t stride, int first, int end)
{
    using Tiles = RtPlainTiles<D>;
    for (int i = threadIdx.x; i < Tiles::TILE * D; i += 256) {
        const int row = i / D, d = i % D;
        tile[row * Tiles::PITCH + d] = first + row < end ? rt_value(from[(int64_t)(first + row) * stride + d]) : 0.0f;
    }
}

/* c = left (right transposed) */
template <int D, int N> RT_INLINE void rt_plain_scores(float (&c)[N][N], const float *left, const float *right)
{
    constexpr int PITCH = RtPlainTiles<D>::PITCH;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
            c[i][j] = 0;
    for (int d = 0; d < D; d++) {
        float a[N], b[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            a[i] = left[(y + 16 * i) * PITCH + d], b[i] = right[(x + 16 * i) * PITCH + d];
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                c[i][j] += a[i] * b[j];
    }
}

/* c += weights right; TURNED: += (weights transposed) right.  `weights` is in shared memory. */
template <int D, bool TURNED, int N, int FEATURES>
RT_INLINE void rt_plain_sums(float (&c)[N][FEATURES], const float *weights, const float *right)
{
    using Tiles = RtPlainTiles<D>;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (int k = 0; k < Tiles::TILE; k++) {
        float a[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            a[i] = weights[TURNED ? k * Tiles::SCORES + y + 16 * i : (y + 16 * i) * Tiles::SCORES + k];
#pragma unroll
        for (int j = 0; j < FEATURES; j++) {
            const float b = x + 16 * j < D ? right[k * Tiles::PITCH + x + 16 * j] : 0.0f;
#pragma unroll
            for (int i = 0; i < N; i++)
                c[i][j] += a[i] * b;
        }
    }
}

template <int N, int FEATURES> RT_INLINE void rt_plain_clear(float (&c)[N][FEATURES])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < FEATURES; j++)
            c[i][j] = 0;
}

template <int D, int N> RT_INLINE void rt_plain_put(float *weights, const float (&c)[N][N])
{
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
            weights[(y + 16 * i) * RtPlainTiles<D>::SCORES + x + 16 * j] = c[i][j];
}

template <int D, int N, int FEATURES>
RT_INLINE void rt_plain_store(float *to, int64_t stride, const float (&c)[N][FEATURES], const float (&factor)[N],
                              int first, int end)
{
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < FEATURES; j++)
            if (first + y + 16 * i < end && x + 16 * j < D)
                to[(int64_t)(first + y + 16 * i) * stride + x + 16 * j] = c[i][j] * factor[i];
}

/* Over the 16 threads of a row. */
template <typename Op> RT_INLINE float rt_plain_row(float x)
{
#pragma unroll
    for (int step = 8; step > 0; step /= 2)
        x = Op::of(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

/* A product becomes a score; `slope`: the derivative by the scaled product.  `bias`: of the head. */
RT_INLINE float rt_plain_shape(float product, float &slope, const float *bias, int query, int key, const RtAttend s)
{
    float score = product * s.scale;
    slope = 1.0f;
    if (s.softcap != 0) {
        const float capped = tanhf(product * (s.scale / s.softcap));
        slope -= capped * capped;
        score = s.softcap * capped;
    }
    return s.has_bias ? score + rt_bias_at(bias, query, key, s) : score;
}

template <int D>
RT_INLINE void rt_attend_plain(const float *q, const float *k, const float *v, const float *bias, const float *sinks,
                               const int32_t *query_segment, const int32_t *key_segment, float *y, float *lse,
                               const RtAttend s)
{
    using Tiles = RtPlainTiles<D>;
    constexpr int TILE = Tiles::TILE, N = Tiles::EACH;
    RT_DYNAMIC_SHARED(bytes);
    float *queries = reinterpret_cast<float *>(bytes), *keys = queries + TILE * Tiles::PITCH;
    float *values = keys + TILE * Tiles::PITCH, *weights = values + TILE * Tiles::PITCH;
    const int tiles = (int)((s.queries + TILE - 1) / TILE), count = (int)s.queries, end = (int)s.keys;
    const int query = (tiles - 1 - (int)(blockIdx.x % tiles)) * TILE, column = threadIdx.x % 16, row = threadIdx.x / 16;
    const int64_t head = blockIdx.x / tiles;
    const int64_t b = head / (s.heads * s.group), h = head / s.group % s.heads, g = head % s.group;
    const RtSegments segments = rt_segments_of(query_segment, key_segment, b, h, s);
    const RtRange own = rt_range_of_queries<TILE>(segments, query, s);
    float sum[N][Tiles::FEATURES], most[N], total[N], share[N];
    rt_plain_clear(sum);
    for (int i = 0; i < N; i++)
        most[i] = sinks ? rt_sink_of(sinks, b, h, g, s) : -INFINITY, total[i] = sinks ? 1.0f : 0.0f;
    rt_plain_load<D>(queries, rt_head_of(q, s.q, b, h, g), s.q.row, query, count);
    for (int key = rt_attend_next<TILE, TILE>(query, 0, end, segments, own, s); key < end;
         key = rt_attend_next<TILE, TILE>(query, key + TILE, end, segments, own, s)) {
        __syncthreads(); /* the iteration before has been read */
        rt_plain_load<D>(keys, rt_head_of(k, s.k, b, h, 0), s.k.row, key, end);
        rt_plain_load<D>(values, rt_head_of(v, s.v, b, h, 0), s.v.row, key, end);
        __syncthreads();
        float score[N][N];
        rt_plain_scores<D>(score, queries, keys);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float now = most[i], added = 0;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const int other = key + column + 16 * j;
                const bool sees = other < end && rt_attend_sees(query + row + 16 * i, other, s) &&
                                  rt_segments_equal(segments, query + row + 16 * i, other, s);
                float slope;
                score[i][j] = sees ? rt_plain_shape(score[i][j], slope, rt_bias_of(bias, b, h, g, s),
                                                    query + row + 16 * i, other, s)
                                   : -INFINITY;
                now = fmaxf(now, score[i][j]);
            }
            now = rt_plain_row<RtMax>(now);
            const float base = now == -INFINITY ? 0.0f : now, kept = expf(most[i] - base);
#pragma unroll
            for (int j = 0; j < N; j++) {
                score[i][j] = expf(score[i][j] - base);
                added += score[i][j];
            }
            total[i] = total[i] * kept + rt_plain_row<RtSum>(added);
            most[i] = now;
#pragma unroll
            for (int j = 0; j < Tiles::FEATURES; j++)
                sum[i][j] *= kept;
        }
        rt_plain_put<D>(weights, score);
        __syncthreads();
        rt_plain_sums<D, false>(sum, weights, values);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = query + row + 16 * i;
        share[i] = total[i] > 0 ? 1.0f / total[i] : 0.0f;
        if (column == 0 && at < count)
            lse[b * s.lse.batch + at * s.lse.row + h * s.lse.head + g * s.lse.group] = most[i] + logf(total[i]);
    }
    rt_plain_store<D>(rt_head_of(y, s.y, b, h, g), s.y.row, sum, share, query, count);
}

/* Weights of a tile, [queries, keys], and gradients of scores; SLOPES: of scaled products. */
template <int D, bool SLOPES, int N>
RT_INLINE void rt_plain_weigh(float (&weight)[N][N], float (&slope)[N][N], const float *queries, const float *keys,
                              const float *values, const float *gradients, const float *lse, const float *shares,
                              int64_t share_row, const float *bias, int query, int key, const RtSegments segments,
                              const RtAttend s)
{
    const int column = threadIdx.x % 16, row = threadIdx.x / 16;
    rt_plain_scores<D>(weight, queries, keys);
    rt_plain_scores<D>(slope, gradients, values);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = query + row + 16 * i;
        const bool is_there = at < s.queries;
        const float level = is_there ? lse[at * s.lse.row] : 0.0f, share = is_there ? shares[at * share_row] : 0.0f;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int other = key + column + 16 * j;
            const bool sees = is_there && other < s.keys && level != -INFINITY && rt_attend_sees(at, other, s) &&
                              rt_segments_equal(segments, at, other, s);
            float factor;
            const float power = rt_plain_shape(weight[i][j], factor, bias, at, other, s) - level;
            weight[i][j] = sees ? expf(power > 0 ? 0.0f : power) : 0.0f; /* above 0 by rounding only */
            slope[i][j] = weight[i][j] * (slope[i][j] - share) * (SLOPES ? factor : 1.0f);
        }
    }
}

/* Weights and slopes of a tile, into shared memory. */
template <int D>
RT_INLINE void rt_plain_slopes(const float *queries, const float *keys, const float *values, const float *gradients,
                               float *weights, float *slopes, const float *lse, const float *shares, const float *bias,
                               int query, int key, const RtSegments segments, const RtAttend s)
{
    constexpr int N = RtPlainTiles<D>::EACH;
    float weight[N][N], slope[N][N];
    rt_plain_weigh<D, true>(weight, slope, queries, keys, values, gradients, lse, shares, 1, bias, query, key, segments,
                            s);
    rt_plain_put<D>(weights, weight);
    rt_plain_put<D>(slopes, slope);
}

/* The tiles of a block of the gradients. */
template <int D> struct RtPlainMemory {
    using Tiles = RtPlainTiles<D>;
    float *queries, *keys, *values, *gradients, *weights, *slopes;
    __device__ __forceinline__ RtPlainMemory(unsigned char *bytes)
    {
        queries = reinterpret_cast<float *>(bytes);
        keys = queries + Tiles::TILE * Tiles::PITCH;
        values = keys + Tiles::TILE * Tiles::PITCH;
        gradients = values + Tiles::TILE * Tiles::PITCH;
        weights = gradients + Tiles::TILE * Tiles::PITCH;
        slopes = weights + Tiles::TILE * Tiles::SCORES;
    }
};

template <int D>
RT_INLINE void rt_attend_grad_plain_share(const float *q, const float *k, const float *v, const float *y,
                                          const float *lse, const float *dy, const float *bias,
                                          const int32_t *query_segment, const int32_t *key_segment, float *dq,
                                          float *dk, float *dv, float *scratch, const RtAttend s)
{
    rt_attend_grad_share<D, false>(q, k, v, y, lse, dy, bias, query_segment, key_segment, dq, dk, dv, scratch, s);
}

template <int D>
RT_INLINE void rt_attend_grad_plain_keys(const float *q, const float *k, const float *v, const float *,
                                         const float *lse, const float *dy, const float *bias,
                                         const int32_t *query_segment, const int32_t *key_segment, float *, float *dk,
                                         float *dv, float *scratch, const RtAttend s)
{
    using Tiles = RtPlainTiles<D>;
    constexpr int TILE = Tiles::TILE, N = Tiles::EACH;
    RT_DYNAMIC_SHARED(bytes);
    const RtPlainMemory<D> m(bytes);
    const int tiles = (int)((s.keys + TILE - 1) / TILE), key = (int)(blockIdx.x % tiles) * TILE, end = (int)s.keys;
    const int64_t head = blockIdx.x / tiles, b = head / s.heads, h = head % s.heads;
    const RtSegments segments = rt_segments_of(query_segment, key_segment, b, h, s);
    const RtRange own = rt_range_of_keys<TILE>(segments, key, s);
    float sum_k[N][Tiles::FEATURES], sum_v[N][Tiles::FEATURES], scale[N], one[N];
    rt_plain_clear(sum_k);
    rt_plain_clear(sum_v);
    for (int i = 0; i < N; i++)
        scale[i] = s.scale, one[i] = 1;
    rt_plain_load<D>(m.keys, rt_head_of(k, s.k, b, h, 0), s.k.row, key, end);
    rt_plain_load<D>(m.values, rt_head_of(v, s.v, b, h, 0), s.v.row, key, end);
    for (RtQueries at = rt_queries_from<TILE, TILE>({ 0, 0 }, key, segments, own, s); at.g < s.group;
         at = rt_queries_from<TILE, TILE>({ at.g, at.query + TILE }, key, segments, own, s)) {
        __syncthreads(); /* the iteration before has been read */
        rt_plain_load<D>(m.queries, rt_head_of(q, s.q, b, h, at.g), s.q.row, at.query, (int)s.queries);
        rt_plain_load<D>(m.gradients, rt_head_of(dy, s.dy, b, h, at.g), s.dy.row, at.query, (int)s.queries);
        __syncthreads();
        rt_plain_slopes<D>(m.queries, m.keys, m.values, m.gradients, m.weights, m.slopes,
                           rt_head_of(lse, s.lse, b, h, at.g), rt_shares_of(scratch, b, h, at.g, s),
                           rt_bias_of(bias, b, h, at.g, s), at.query, key, segments, s);
        __syncthreads();
        rt_plain_sums<D, true>(sum_v, m.weights, m.gradients);
        rt_plain_sums<D, true>(sum_k, m.slopes, m.queries);
    }
    rt_plain_store<D>(rt_head_of(dk, s.dk, b, h, 0), s.dk.row, sum_k, scale, key, end);
    rt_plain_store<D>(rt_head_of(dv, s.dv, b, h, 0), s.dv.row, sum_v, one, key, end);
}

template <int D>
RT_INLINE void rt_attend_grad_plain_queries(const float *q, const float *k, const float *v, const float *,
                                            const float *lse, const float *dy, const float *bias,
                                            const int32_t *query_segment, const int32_t *key_segment, float *dq,
                                            float *, float *, float *scratch, const RtAttend s)
{
    using Tiles = RtPlainTiles<D>;
    constexpr int TILE = Tiles::TILE, N = Tiles::EACH;
    RT_DYNAMIC_SHARED(bytes);
    const RtPlainMemory<D> m(bytes);
    const int tiles = (int)((s.queries + TILE - 1) / TILE), count = (int)s.queries, end = (int)s.keys;
    const int query = (tiles - 1 - (int)(blockIdx.x % tiles)) * TILE;
    const int64_t head = blockIdx.x / tiles;
    const int64_t b = head / (s.heads * s.group), h = head / s.group % s.heads, g = head % s.group;
    const RtSegments segments = rt_segments_of(query_segment, key_segment, b, h, s);
    const RtRange own = rt_range_of_queries<TILE>(segments, query, s);
    float sum[N][Tiles::FEATURES], scale[N];
    rt_plain_clear(sum);
    for (int i = 0; i < N; i++)
        scale[i] = s.scale;
    rt_plain_load<D>(m.queries, rt_head_of(q, s.q, b, h, g), s.q.row, query, count);
    rt_plain_load<D>(m.gradients, rt_head_of(dy, s.dy, b, h, g), s.dy.row, query, count);
    for (int key = rt_attend_next<TILE, TILE>(query, 0, end, segments, own, s); key < end;
         key = rt_attend_next<TILE, TILE>(query, key + TILE, end, segments, own, s)) {
        __syncthreads(); /* the iteration before has been read */
        rt_plain_load<D>(m.keys, rt_head_of(k, s.k, b, h, 0), s.k.row, key, end);
        rt_plain_load<D>(m.values, rt_head_of(v, s.v, b, h, 0), s.v.row, key, end);
        __syncthreads();
        rt_plain_slopes<D>(m.queries, m.keys, m.values, m.gradients, m.weights, m.slopes,
                           rt_head_of(lse, s.lse, b, h, g), rt_shares_of(scratch, b, h, g, s),
                           rt_bias_of(bias, b, h, g, s), query, key, segments, s);
        __syncthreads();
        rt_plain_sums<D, false>(sum, m.slopes, m.keys);
    }
    rt_plain_store<D>(rt_head_of(dq, s.dq, b, h, g), s.dq.row, sum, scale, query, count);
}

#endif
