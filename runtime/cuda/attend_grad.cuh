/* attend_grad.cuh -- the gradients of attend.cuh (Dao, "FlashAttention-2", algorithm 2), with weights recomputed from
 * the saved log-sum-exp.
 *
 * Three launches, without atomics: the first computes share = dy . y of each query; in the second each block has a tile
 * of keys, iterates over the queries and sums dk and dv; in the third each block has a tile of queries, iterates over
 * the keys and sums dq.  This computes scores twice, but the order of all sums is fixed.
 */
#ifndef MPC_CUDA_ATTEND_GRAD_H
#define MPC_CUDA_ATTEND_GRAD_H

#include "attend.cuh"
#include "reduce.cuh"

template <int D> struct RtAttendGradTiles {
    static constexpr int SPLIT = D > 128 ? 2 : 1; /* warps among which the features of a key's gradients are divided */
    static constexpr bool IS_SMALL = RT_SMALL_SHARED && D > 176;
    static constexpr int GROUPS = 4, TILE = 16 * GROUPS, OTHERS = D <= 64 ? 64 : IS_SMALL ? 16 : 32;
    static constexpr int KEY_THREADS = 32 * GROUPS * SPLIT, QUERY_THREADS = 32 * GROUPS;
    static constexpr int PITCH = RtTile<D>::PITCH;
    /* The numbers of the other tiles (level, share) are after these tiles or, if that needs too much memory, in the
     * padding of their rows.
     */
    static constexpr int STEP = IS_SMALL ? PITCH / 2 : 1;
    static constexpr int BYTES = (2 * TILE + 4 * OTHERS) * PITCH * 2 + (IS_SMALL ? 0 : 4 * OTHERS * 4);
    static_assert(!RT_SMALL_SHARED || BYTES <= 99 * 1024);
};

/* The shares of queries in scratch: [batch, heads, group, queries]. */
RT_INLINE float *rt_shares_of(float *scratch, int64_t b, int64_t h, int64_t g, const RtAttend s)
{
    return scratch + ((b * s.heads + h) * s.group + g) * s.queries;
}

/* share = dy . y, which the gradient of softmax subtracts; one warp per query. */
template <int D, bool ASYNC, typename T>
RT_INLINE void rt_attend_grad_share(const T *, const T *, const T *, const T *y, const float *, const T *dy,
                                    const float *, const int32_t *, const int32_t *, T *, T *, T *, float *scratch,
                                    const RtAttend s)
{
    constexpr int WIDTH = ASYNC ? 4 : 1;
    const int64_t item = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (item >= s.batch * s.heads * s.group * s.queries)
        return;
    const int64_t query = item % s.queries, head = item / s.queries;
    const int64_t b = head / (s.heads * s.group), h = head / s.group % s.heads, g = head % s.group;
    const T *one = rt_head_of(y, s.y, b, h, g) + query * s.y.row,
            *other = rt_head_of(dy, s.dy, b, h, g) + query * s.dy.row;
    float sum = 0;
#pragma unroll
    for (int d = threadIdx.x % 32 * WIDTH; d < D; d += 32 * WIDTH) {
        const RtPack<T, WIDTH> a = rt_load_pack<WIDTH>(one + d), c = rt_load_pack<WIDTH>(other + d);
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            sum += rt_value(a[e]) * rt_value(c[e]);
    }
    sum = rt_warp<RtSum>(sum);
    if (threadIdx.x % 32 == 0)
        scratch[item] = sum;
}

/* The exponent subtracted for a query's weights: infinity, which makes them 0, if the query does not exist or sees no
 * key. */
RT_INLINE float rt_level(float lse, bool is_there) { return is_there && lse != -INFINITY ? lse * RT_LOG2E : INFINITY; }

/* --- dk and dv --------------------------------------------------------------------------------- */

/* A tile of queries of one of the group's heads. */
struct RtQueries {
    int g, query;
};

/* The next tile that sees some of the keys, `from` included; g = s.group if there is none.  `own`: the segments of the
 * keys. */
template <int KEYS, int QUERIES>
RT_INLINE RtQueries rt_queries_from(RtQueries from, int key, const RtSegments segments, const RtRange own,
                                    const RtAttend s)
{
    while (from.g < s.group) {
        if (from.query >= s.queries)
            from = { from.g + 1, 0 };
        else if (rt_sees_any(rt_ahead(from.query, QUERIES, key, KEYS, s), s) &&
                 (!segments.query || rt_ranges_meet(own, rt_range_of_queries<QUERIES>(segments, from.query, s))))
            break;
        else
            from.query += QUERIES;
    }
    return from;
}

/* The parts of the shared memory of a block: addresses are computed, since arrays of them, indexed by `side`, would lie
 * in local memory, and what they point to would be accessed as if it were any memory. */
template <int D, typename T> struct RtAttendGradMemory {
    using Tiles = RtAttendGradTiles<D>;
    T *const at;
    /* Tile i of two: keys and values, or queries and dy; there are two buffers for the other tiles. */
    __device__ __forceinline__ T *own(int i) const { return at + i * Tiles::TILE * Tiles::PITCH; }
    __device__ __forceinline__ T *other(int side, int i) const
    {
        return at + (2 * Tiles::TILE + (2 * side + i) * Tiles::OTHERS) * Tiles::PITCH;
    }
    /* STEP elements apart */
    __device__ __forceinline__ float *level(int side) const { return numbers(side, 0); }
    __device__ __forceinline__ float *share(int side) const { return numbers(side, 1); }

  private:
    __device__ __forceinline__ float *numbers(int side, int i) const
    {
        return Tiles::IS_SMALL ? reinterpret_cast<float *>(other(side, i) + RtTile<D>::WIDE)
                               : reinterpret_cast<float *>(other(2, 0)) + (2 * i + side) * Tiles::OTHERS;
    }
};

template <int D, bool ASYNC, typename T>
RT_INLINE void rt_load_queries(const RtAttendGradMemory<D, T> &memory, int side, RtQueries at, const T *q, const T *dy,
                               const float *lse, float *scratch, int64_t b, int64_t h, const RtAttend s)
{
    using Tiles = RtAttendGradTiles<D>;
    constexpr int QUERIES = Tiles::OTHERS, THREADS = Tiles::KEY_THREADS;
    const T *from_q = rt_head_of(q, s.q, b, h, at.g), *from_dy = rt_head_of(dy, s.dy, b, h, at.g);
    const float *from_lse = lse + b * s.lse.batch + h * s.lse.head + at.g * s.lse.group;
    rt_tile_load<D, QUERIES, THREADS, ASYNC>(memory.other(side, 0), from_q, s.q.row, at.query, (int)s.queries);
    rt_tile_load<D, QUERIES, THREADS, ASYNC>(memory.other(side, 1), from_dy, s.dy.row, at.query, (int)s.queries);
    if (threadIdx.x < QUERIES) {
        const int query = at.query + threadIdx.x, number = threadIdx.x * Tiles::STEP;
        const bool is_there = query < s.queries;
        memory.level(side)[number] = rt_level(is_there ? from_lse[query * s.lse.row] : 0.0f, is_there);
        memory.share(side)[number] = is_there ? rt_shares_of(scratch, b, h, at.g, s)[query] : 0.0f;
    }
}

/* Weights from scores: of the block's own 16 rows from `own` on, as held by the warp, with the others from `other` on.
 * Rows are queries, or (OF_KEYS) keys.  `level` is by query: of the thread's two rows, or of all columns, STEP elements
 * apart.  No weight is above 1: it would be infinite for keys that do not exist, with a score of 0 where the others are
 * far below, and where large scores and `level` are rounded differently.  Gradients of weights, less the shares, are to
 * be multiplied by `slope`, which is set if scores are more than scaled products. */
template <bool OF_KEYS, int STEP, int N>
RT_INLINE void rt_weights_of(float (&score)[1][N][4], float (&slope)[1][N][4], const float *level, int own, int other,
                             float scale2, bool all, const float *bias, const RtSegments segments, const RtAttend s)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = 8 * n + lane % 4 * 2 + e % 2, row = own + lane / 4 + e / 2 * 8;
            const int query = OF_KEYS ? other + column : row, key = OF_KEYS ? row : other + column;
            if (rt_attend_shapes(s))
                score[0][n][e] = rt_attend_shape(score[0][n][e], slope[0][n][e], bias, query, key, s);
            const float power = score[0][n][e] * scale2 - level[OF_KEYS ? column * STEP : e / 2];
            const float weight = rt_exp2(power > 0 ? 0.0f : power);
            const bool sees = all || (rt_attend_sees(query, key, s) && rt_segments_equal(segments, query, key, s));
            score[0][n][e] = sees ? weight : 0.0f;
        }
}

/* Writes a gradient of the block's rows to a tile, times a factor. */
template <int PITCH, typename T, int N>
RT_INLINE void rt_gradient_tile(T *tile, const float (&sum)[1][N][4], int row, int column, float factor)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<uint32_t *>(tile + (row + lane / 4 + 8 * half) * PITCH + column + 8 * n + lane % 4 * 2) =
                rt_pack_two(sum[0][n][2 * half] * factor, sum[0][n][2 * half + 1] * factor, T{});
}

template <int D, bool ASYNC, typename T>
RT_INLINE void rt_attend_grad_keys(const T *q, const T *k, const T *v, const T *, const float *lse, const T *dy,
                                   const float *bias, const int32_t *query_segment, const int32_t *key_segment, T *,
                                   T *dk, T *dv, float *scratch, const RtAttend s)
{
    using Tiles = RtAttendGradTiles<D>;
    constexpr int KEYS = Tiles::TILE, QUERIES = Tiles::OTHERS, THREADS = Tiles::KEY_THREADS, PITCH = Tiles::PITCH;
    constexpr int PART = RtTile<D>::WIDE / Tiles::SPLIT; /* features of one warp */
    RT_DYNAMIC_SHARED(bytes);
    const RtAttendGradMemory<D, T> memory = { reinterpret_cast<T *>(bytes) };
    const int tiles = (int)((s.keys + KEYS - 1) / KEYS), key = (int)(blockIdx.x % tiles) * KEYS, end = (int)s.keys;
    const int64_t head = blockIdx.x / tiles, b = head / s.heads, h = head % s.heads;
    const int warp = threadIdx.x / 32, row = warp % Tiles::GROUPS * 16, column = warp / Tiles::GROUPS * PART;
    const float scale2 = rt_scale2(s);
    const RtSegments segments = rt_segments_of(query_segment, key_segment, b, h, s);
    const RtRange own = rt_range_of_keys<KEYS>(segments, key, s);
    float sum_k[1][PART / 8][4], sum_v[1][PART / 8][4];
    rt_clear_pieces(sum_k);
    rt_clear_pieces(sum_v);

    rt_tile_load<D, KEYS, THREADS, ASYNC>(memory.own(0), rt_head_of(k, s.k, b, h, 0), s.k.row, key, end);
    rt_tile_load<D, KEYS, THREADS, ASYNC>(memory.own(1), rt_head_of(v, s.v, b, h, 0), s.v.row, key, end);
    RtQueries at = rt_queries_from<KEYS, QUERIES>({ 0, 0 }, key, segments, own, s);
    if (at.g < s.group)
        rt_load_queries<D, ASYNC>(memory, 0, at, q, dy, lse, scratch, b, h, s);
    rt_copy_commit();
    for (int side = 0; at.g < s.group; side ^= 1) {
        const RtQueries next = rt_queries_from<KEYS, QUERIES>({ at.g, at.query + QUERIES }, key, segments, own, s);
        if (next.g < s.group)
            rt_load_queries<D, ASYNC>(memory, side ^ 1, next, q, dy, lse, scratch, b, h, s);
        rt_copy_commit();
        rt_copy_wait<1>();
        __syncthreads();
        const T *queries = memory.other(side, 0), *gradients = memory.other(side, 1);
        const bool all = rt_sees_all(rt_ahead(at.query, QUERIES, key, KEYS, s), s) &&
                         (!segments.query || rt_ranges_equal(own, rt_range_of_queries<QUERIES>(segments, at.query, s)));
        float weight[1][QUERIES / 8][4], slope[1][QUERIES / 8][4], factor[1][QUERIES / 8][4];
        rt_clear_pieces(weight);
        rt_clear_pieces(slope);
        rt_product_of_rows<D>(weight, memory.own(0), row, queries, 0);
        rt_weights_of<true, Tiles::STEP>(weight, factor, memory.level(side), key + row, at.query, scale2, all,
                                         rt_bias_of(bias, b, h, at.g, s), segments, s);
        rt_product_of_weights<D>(sum_v, weight, gradients, column);
        rt_product_of_rows<D>(slope, memory.own(1), row, gradients, 0);
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                slope[0][n][e] =
                    weight[0][n][e] *
                    (slope[0][n][e] - memory.share(side)[(8 * n + threadIdx.x % 4 * 2 + e % 2) * Tiles::STEP]) *
                    (rt_attend_shapes(s) ? factor[0][n][e] : 1.0f);
        rt_product_of_weights<D>(sum_k, slope, queries, column);
        __syncthreads(); /* all have read this side */
        at = next;
    }
    rt_copy_wait<0>();
    __syncthreads();
    rt_gradient_tile<PITCH>(memory.own(0), sum_k, row, column, s.scale);
    rt_gradient_tile<PITCH>(memory.own(1), sum_v, row, column, 1.0f);
    __syncthreads();
    rt_tile_store<D, KEYS, THREADS, ASYNC>(memory.own(0), rt_head_of(dk, s.dk, b, h, 0), s.dk.row, key, end);
    rt_tile_store<D, KEYS, THREADS, ASYNC>(memory.own(1), rt_head_of(dv, s.dv, b, h, 0), s.dv.row, key, end);
}

/* --- dq ---------------------------------------------------------------------------------------- */

template <int D, bool ASYNC, typename T>
RT_INLINE void rt_attend_grad_queries(const T *q, const T *k, const T *v, const T *, const float *lse, const T *dy,
                                      const float *bias, const int32_t *query_segment, const int32_t *key_segment,
                                      T *dq, T *, T *, float *scratch, const RtAttend s)
{
    using Tiles = RtAttendGradTiles<D>;
    constexpr int QUERIES = Tiles::TILE, KEYS = Tiles::OTHERS, THREADS = Tiles::QUERY_THREADS, PITCH = Tiles::PITCH;
    RT_DYNAMIC_SHARED(bytes);
    const RtAttendGradMemory<D, T> memory = { reinterpret_cast<T *>(bytes) };
    const int tiles = (int)((s.queries + QUERIES - 1) / QUERIES), count = (int)s.queries, end = (int)s.keys;
    const int query = (tiles - 1 - (int)(blockIdx.x % tiles)) * QUERIES;
    const int64_t head = blockIdx.x / tiles;
    const int64_t b = head / (s.heads * s.group), h = head / s.group % s.heads, g = head % s.group;
    const T *const from_k = rt_head_of(k, s.k, b, h, 0), *const from_v = rt_head_of(v, s.v, b, h, 0);
    const int row = threadIdx.x / 32 * 16;
    const float scale2 = rt_scale2(s);
    const RtSegments segments = rt_segments_of(query_segment, key_segment, b, h, s);
    const RtRange own = rt_range_of_queries<QUERIES>(segments, query, s);
    float sum[1][RtTile<D>::WIDE / 8][4], level[2], share[2];
    rt_clear_pieces(sum);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = query + row + threadIdx.x % 32 / 4 + 8 * half;
        const float *from = lse + b * s.lse.batch + h * s.lse.head + g * s.lse.group;
        level[half] = rt_level(at < count ? from[at * s.lse.row] : 0.0f, at < count);
        share[half] = at < count ? rt_shares_of(scratch, b, h, g, s)[at] : 0.0f;
    }

    rt_tile_load<D, QUERIES, THREADS, ASYNC>(memory.own(0), rt_head_of(q, s.q, b, h, g), s.q.row, query, count);
    rt_tile_load<D, QUERIES, THREADS, ASYNC>(memory.own(1), rt_head_of(dy, s.dy, b, h, g), s.dy.row, query, count);
    int key = rt_attend_next<QUERIES, KEYS>(query, 0, end, segments, own, s);
    if (key < end) {
        rt_tile_load<D, KEYS, THREADS, ASYNC>(memory.other(0, 0), from_k, s.k.row, key, end);
        rt_tile_load<D, KEYS, THREADS, ASYNC>(memory.other(0, 1), from_v, s.v.row, key, end);
    }
    rt_copy_commit();
    for (int side = 0; key < end; side ^= 1) {
        const int next = rt_attend_next<QUERIES, KEYS>(query, key + KEYS, end, segments, own, s);
        if (next < end) {
            rt_tile_load<D, KEYS, THREADS, ASYNC>(memory.other(side ^ 1, 0), from_k, s.k.row, next, end);
            rt_tile_load<D, KEYS, THREADS, ASYNC>(memory.other(side ^ 1, 1), from_v, s.v.row, next, end);
        }
        rt_copy_commit();
        rt_copy_wait<1>();
        __syncthreads();
        const bool all = rt_sees_all(rt_ahead(query, QUERIES, key, KEYS, s), s) &&
                         (!segments.key || rt_ranges_equal(own, rt_range_of_keys<KEYS>(segments, key, s)));
        float weight[1][KEYS / 8][4], slope[1][KEYS / 8][4], factor[1][KEYS / 8][4];
        rt_clear_pieces(weight);
        rt_clear_pieces(slope);
        rt_product_of_rows<D>(weight, memory.own(0), row, memory.other(side, 0), 0);
        rt_weights_of<false, 1>(weight, factor, level, query + row, key, scale2, all, rt_bias_of(bias, b, h, g, s),
                                segments, s);
        rt_product_of_rows<D>(slope, memory.own(1), row, memory.other(side, 1), 0);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                slope[0][n][e] =
                    weight[0][n][e] * (slope[0][n][e] - share[e / 2]) * (rt_attend_shapes(s) ? factor[0][n][e] : 1.0f);
        rt_product_of_weights<D>(sum, slope, memory.other(side, 0), 0);
        __syncthreads(); /* all have read this side */
        key = next;
    }
    rt_copy_wait<0>();
    __syncthreads();
    rt_gradient_tile<PITCH>(memory.own(0), sum, row, 0, s.scale);
    __syncthreads();
    rt_tile_store<D, QUERIES, THREADS, ASYNC>(memory.own(0), rt_head_of(dq, s.dq, b, h, g), s.dq.row, query, count);
}

#endif
