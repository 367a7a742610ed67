/* attend.cuh -- softmax(scale q k^T) v on tensor cores without a stored [queries, keys] matrix: kernels/attend.h on the
 * device, for bf16 and f16 (Dao, "FlashAttention-2", arXiv 2307.08691, algorithm 1).
 *
 * A block has a tile of queries of one head, and iterates over the keys.  Each of its 4 warps has 16 or 32 queries, so
 * that the softmax is within a warp.  Values are loaded while scores are computed, and the next keys while values are
 * used.
 *
 * Letters: as in kernels/attend.h.
 */
#ifndef MPC_CUDA_ATTEND_H
#define MPC_CUDA_ATTEND_H

#include "attend_tile.cuh"

/* Segments, and scores that are more than products, leave fewer registers for sums: WIDEST is the longest head for two
 * pieces. */
template <int D, int WIDEST> struct RtAttendTiles {
    static constexpr int WARPS = 4, THREADS = 32 * WARPS;
    static constexpr int PIECES = D <= WIDEST ? 2 : 1; /* of 16 queries, of a warp */
    static constexpr int QUERIES = 16 * PIECES * WARPS, KEYS = D <= 128 ? 64 : 32;
    static constexpr int PITCH = RtTile<D>::PITCH;
    static constexpr int BYTES = (QUERIES + 2 * KEYS) * PITCH * 2;
};

/* Sets scores to minus infinity if a query does not see a key, or if the key does not exist. */
template <int PIECES, int N>
RT_INLINE void rt_attend_mask(float (&score)[PIECES][N][4], int query, int key, const RtAttend s)
{
    rt_attend_each(score, query, key, [&](float unmasked, int row, int column) {
        return column >= s.keys || !rt_attend_sees(row, column, s) ? -INFINITY : unmasked;
    });
}

/* The same for keys of other segments.  Segments are in shared memory, in the padding of the rows of tiles: more
 * addresses would need too many registers. */
template <int D, typename T> RT_INLINE int32_t *rt_segment_in(T *tile, int row)
{
    return reinterpret_cast<int32_t *>(tile + row * RtTile<D>::PITCH + RtTile<D>::WIDE);
}

template <int D, int PIECES, int N, typename T>
RT_INLINE void rt_attend_mask_segments(float (&score)[PIECES][N][4], T *queries, int row, T *values)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int32_t of_key = *rt_segment_in<D>(values, 8 * n + lane % 4 * 2 + e);
#pragma unroll
            for (int i = 0; i < 2 * PIECES; i++)
                if (*rt_segment_in<D>(queries, row + 8 * i + lane / 4) != of_key)
                    score[i / 2][n][i % 2 * 2 + e] = -INFINITY;
        }
}

/* A step of the online softmax: scores become weights; sums of earlier keys are to be multiplied by `kept`, for the new
 * maximum.  `most` and `total` are for the thread's two rows of each piece; total is the thread's partial sum. */
template <int PIECES, int N>
RT_INLINE void rt_attend_weigh(float (&score)[PIECES][N][4], float (&most)[PIECES][2], float (&total)[PIECES][2],
                               float (&kept)[PIECES][2], float scale2)
{
#pragma unroll
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float now = most[i][half];
#pragma unroll
            for (int n = 0; n < N; n++)
                now = fmaxf(now, fmaxf(score[i][n][2 * half], score[i][n][2 * half + 1]));
            now = fmaxf(now, __shfl_xor_sync(0xFFFFFFFFu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xFFFFFFFFu, now, 2));
            const float base = now == -INFINITY ? 0.0f : now * scale2; /* no key seen yet: all weights are 0 */
            kept[i][half] = rt_exp2(most[i][half] * scale2 - base);
            float added = 0;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    score[i][n][e] = rt_exp2(score[i][n][e] * scale2 - base);
                    added += score[i][n][e];
                }
            total[i][half] = total[i][half] * kept[i][half] + added;
            most[i][half] = now;
        }
}

template <int PIECES, int WIDE>
RT_INLINE void rt_attend_rescale(float (&sum)[PIECES][WIDE][4], const float (&kept)[PIECES][2])
{
#pragma unroll
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int n = 0; n < WIDE; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum[i][n][e] *= kept[i][e / 2];
}

/* Writes y to a tile in shared memory, and lse. */
template <int D, typename T, int PIECES, int WIDE>
RT_INLINE void rt_attend_finish(float (&sum)[PIECES][WIDE][4], float (&most)[PIECES][2], float (&total)[PIECES][2],
                                T *tile, int row, float *lse, int query, float scale2, const RtAttend s)
{
    constexpr int PITCH = RtTile<D>::PITCH;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float all = total[i][half];
            all += __shfl_xor_sync(0xFFFFFFFFu, all, 1);
            all += __shfl_xor_sync(0xFFFFFFFFu, all, 2);
            const float share = all > 0 ? 1.0f / all : 0.0f;
            const int at = row + 16 * i + lane / 4 + 8 * half;
#pragma unroll
            for (int n = 0; n < RtTile<D>::WIDE / 8; n++)
                *reinterpret_cast<uint32_t *>(tile + at * PITCH + 8 * n + lane % 4 * 2) =
                    rt_pack_two(sum[i][n][2 * half] * share, sum[i][n][2 * half + 1] * share, T{});
            if (lane % 4 == 0 && query + at < s.queries)
                lse[(query + at) * s.lse.row] =
                    all > 0 ? (most[i][half] * scale2 + log2f(all)) * 0.6931471805599453f : -INFINITY;
        }
}

/* The next tile of keys from `key` on that some query of the block sees; `end` if there is none.  `own`: the segments
 * of the queries. */
template <int QUERIES, int KEYS>
RT_INLINE int rt_attend_next(int query, int key, int end, const RtSegments segments, const RtRange own,
                             const RtAttend s)
{
    while (key < end && !(rt_sees_any(rt_ahead(query, QUERIES, key, KEYS, s), s) &&
                          (!segments.key || rt_ranges_meet(own, rt_range_of_keys<KEYS>(segments, key, s)))))
        key += KEYS;
    return key < end ? key : end;
}

template <int D, bool ASYNC, int WIDEST = 128, typename T>
RT_INLINE void rt_attend(const T *q, const T *k, const T *v, const float *bias, const float *sinks,
                         const int32_t *query_segment, const int32_t *key_segment, T *y, float *lse, const RtAttend s)
{
    using Tiles = RtAttendTiles<D, WIDEST>;
    constexpr int QUERIES = Tiles::QUERIES, KEYS = Tiles::KEYS, THREADS = Tiles::THREADS, PIECES = Tiles::PIECES;
    constexpr int WIDE = RtTile<D>::WIDE;
    RT_DYNAMIC_SHARED(memory);
    T *queries = reinterpret_cast<T *>(memory), *keys = queries + QUERIES * Tiles::PITCH;
    T *values = keys + KEYS * Tiles::PITCH;
    const int tiles = (int)((s.queries + QUERIES - 1) / QUERIES);
    const int head = blockIdx.x / tiles;
    const int query = (tiles - 1 - (int)(blockIdx.x % tiles)) * QUERIES; /* causal: blocks with most keys are first */
    const int b = head / (int)(s.heads * s.group), h = head / (int)s.group % (int)s.heads, g = head % (int)s.group;
    const int row = threadIdx.x / 32 * 16 * PIECES, end = (int)s.keys;
    const T *const from_q = rt_head_of(q, s.q, b, h, g), *const from_k = rt_head_of(k, s.k, b, h, 0);
    const T *const from_v = rt_head_of(v, s.v, b, h, 0);
    const float *const of_head = rt_bias_of(bias, b, h, g, s);
    const float scale2 = rt_scale2(s);
    const RtSegments segments = rt_segments_of(query_segment, key_segment, b, h, s);
    const RtRange own = rt_range_of_queries<QUERIES>(segments, query, s);

    float sum[PIECES][WIDE / 8][4], most[PIECES][2], total[PIECES][2], kept[PIECES][2];
    rt_clear_pieces(sum);
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        most[i][0] = most[i][1] = -INFINITY, total[i][0] = total[i][1] = 0;
#pragma unroll
    for (int i = 0; sinks && i < 2 * PIECES; i++) { /* one of the four threads of a row has its weight, 1 */
        most[i / 2][i % 2] = rt_sink_of(sinks, b, h, g, s) * RT_LOG2E / scale2;
        total[i / 2][i % 2] = threadIdx.x % 4 == 0 ? 1.0f : 0.0f;
    }

    int key = rt_attend_next<QUERIES, KEYS>(query, 0, end, segments, own, s);
    rt_tile_load<D, QUERIES, THREADS, ASYNC>(queries, from_q, s.q.row, query, (int)s.queries);
    for (int i = threadIdx.x; segments.query && i < QUERIES; i += THREADS)
        *rt_segment_in<D>(queries, i) = rt_segment_of_query(segments, rt_least(query + i, (int)s.queries - 1), s);
    if (key < end)
        rt_tile_load<D, KEYS, THREADS, ASYNC>(keys, from_k, s.k.row, key, end);
    rt_copy_commit();
    while (key < end) {
        const int next = rt_attend_next<QUERIES, KEYS>(query, key + KEYS, end, segments, own, s);
        const bool mixed = segments.key && !rt_ranges_equal(own, rt_range_of_keys<KEYS>(segments, key, s));
        rt_tile_load<D, KEYS, THREADS, ASYNC>(values, from_v, s.v.row, key, end);
        for (int i = threadIdx.x; segments.key && i < KEYS; i += THREADS)
            *rt_segment_in<D>(values, i) = rt_segment_of_key(segments, rt_least(key + i, end - 1), s);
        rt_copy_commit();
        rt_copy_wait<1>(); /* the keys */
        __syncthreads();
        float score[PIECES][KEYS / 8][4];
        rt_clear_pieces(score);
        rt_product_of_rows<D>(score, queries, row, keys, 0);
        __syncthreads(); /* all threads have read the keys */
        if (next < end)
            rt_tile_load<D, KEYS, THREADS, ASYNC>(keys, from_k, s.k.row, next, end);
        rt_copy_commit();
        if (rt_attend_shapes(s))
            rt_attend_shape_all(score, of_head, query + row, key, s);
        if (key + KEYS > end || !rt_sees_all(rt_ahead(query, QUERIES, key, KEYS, s), s))
            rt_attend_mask(score, query + row, key, s);
        if (mixed)
            rt_attend_mask_segments<D>(score, queries, row, values);
        rt_attend_weigh(score, most, total, kept, scale2);
        rt_attend_rescale(sum, kept);
        rt_copy_wait<1>(); /* the values */
        __syncthreads();
        rt_product_of_weights<D>(sum, score, values, 0);
        __syncthreads(); /* all threads have read the values */
        key = next;
    }
    rt_copy_wait<0>();
    __syncthreads();
    float *to_lse = lse + b * s.lse.batch + h * s.lse.head + g * s.lse.group;
    rt_attend_finish<D>(sum, most, total, queries, row, to_lse, query, scale2, s);
    __syncthreads();
    rt_tile_store<D, QUERIES, THREADS, ASYNC>(queries, rt_head_of(y, s.y, b, h, g), s.y.row, query, (int)s.queries);
}

#endif
