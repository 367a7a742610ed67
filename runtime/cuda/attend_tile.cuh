/* attend_tile.cuh -- shared by the attention kernels on tensor cores: tiles in shared memory, products of tiles,
 * visibility of keys.
 *
 * A tile is rows of D features of 16 bits, padded with zeros to a multiple of 16 (WIDE), and 16 more bytes per row
 * (PITCH), so that the eight rows that ldmatrix reads at once are in different banks.
 */
#ifndef MPC_CUDA_ATTEND_TILE_H
#define MPC_CUDA_ATTEND_TILE_H

#include "element.cuh"
#include "reduce.cuh"

#include "../kernels/shape.h"

template <int D> struct RtTile {
    static constexpr int WIDE = (D + 15) / 16 * 16, PITCH = WIDE + 8;
    /* Unroll factors of loops that use many registers: determined by compiling for sm_80 and sm_90. */
    static constexpr int LOADS = D > 112 && D <= 128 ? 1 : 2, STEPS = D > 96 && D <= 128 ? 1 : 2;
};

/* The instructions for an element type. */
RT_INLINE void rt_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, rt_bf16)
{
    rt_mma_bf16(c, a, b0, b1);
}
RT_INLINE void rt_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, rt_f16)
{
    rt_mma_f16(c, a, b0, b1);
}
RT_INLINE uint32_t rt_pack_two(float low, float high, rt_bf16) { return rt_pack_bf16(low, high); }
RT_INLINE uint32_t rt_pack_two(float low, float high, rt_f16) { return rt_pack_f16(low, high); }

/* --- Loads and stores ------------------------------------------------------------------------- */

/* Starts to load rows first ... first + ROWS - 1; rows from `end` on are zeros.  ASYNC: asynchronous copies, if rows
 * are aligned to 16 bytes and D is a multiple of 8.  Fully unrolled, its addresses would need too many registers. */
template <int D, int ROWS, int THREADS, bool ASYNC, typename T>
RT_INLINE void rt_tile_load(T *tile, const T *from, int64_t stride, int first, int end)
{
    constexpr int CHUNKS = RtTile<D>::WIDE / 8, PITCH = RtTile<D>::PITCH;
#pragma unroll RtTile < D> ::LOADS
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, column = i % CHUNKS * 8;
        const bool is_there = first + row < end && column < D;
        T *to = tile + row * PITCH + column;
        const T *at = from + (is_there ? (int64_t)(first + row) * stride + column : 0);
        if (ASYNC) {
            rt_copy_async(to, at, is_there);
        } else {
#pragma unroll
            for (int e = 0; e < 8; e++)
                to[e] = is_there && column + e < D ? at[e] : T{};
        }
    }
}

/* Stores rows from a tile, after a barrier of the threads that have written it; `thread`: among those that store. */
template <int D, int ROWS, int THREADS, bool ASYNC, typename T>
RT_INLINE void rt_tile_store(const T *tile, T *to, int64_t stride, int first, int end, int thread = threadIdx.x)
{
    constexpr int CHUNKS = RtTile<D>::WIDE / 8, PITCH = RtTile<D>::PITCH;
#pragma unroll
    for (int i = thread; i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, column = i % CHUNKS * 8;
        if (first + row >= end || column >= D)
            continue;
        T *at = to + (int64_t)(first + row) * stride + column;
        const RtPack<T, 8> pack = rt_load_pack<8>(tile + row * PITCH + column);
        if (ASYNC) {
            rt_store_pack(at, pack);
        } else {
#pragma unroll
            for (int e = 0; e < 8; e++)
                if (column + e < D)
                    at[e] = pack[e];
        }
    }
}

/* --- Fragments -------------------------------------------------------------------------------- */

/* Rows row ... row + 15, columns k ... k + 15: the left operand of a product. */
template <int PITCH, typename T> RT_INLINE void rt_left(uint32_t (&a)[4], const T *tile, int row, int k)
{
    const int lane = threadIdx.x % 32;
    rt_load_matrices(a, tile + (row + lane % 16) * PITCH + k + lane / 16 * 8);
}

/* The right operand is the transposed tile: columns n ... n + 15 of it are the tile's rows, k its columns. */
template <int PITCH, typename T> RT_INLINE void rt_right_of_rows(uint32_t (&b)[4], const T *tile, int n, int k)
{
    const int lane = threadIdx.x % 32;
    rt_load_matrices(b, tile + (n + lane / 16 * 8 + lane % 8) * PITCH + k + lane / 8 % 2 * 8);
}

/* The right operand is the tile itself: rows k ... k + 15, columns n ... n + 15. */
template <int PITCH, typename T> RT_INLINE void rt_right(uint32_t (&b)[4], const T *tile, int k, int n)
{
    const int lane = threadIdx.x % 32;
    rt_load_matrices_turned(b, tile + (k + lane % 16) * PITCH + n + lane / 16 * 8);
}

/* Converts two neighbouring pieces of an accumulator to the left operand of the next product. */
template <typename T> RT_INLINE void rt_left_of(uint32_t (&a)[4], const float (&low)[4], const float (&high)[4], T type)
{
    a[0] = rt_pack_two(low[0], low[1], type);
    a[1] = rt_pack_two(low[2], low[3], type);
    a[2] = rt_pack_two(high[0], high[1], type);
    a[3] = rt_pack_two(high[2], high[3], type);
}

/* c[16 * ROWS, 8 * N] += left rows * (right tile transposed), over D.  Fully unrolled, the loads of all steps would be
 * moved to the front and need too many registers. */
template <int D, int ROWS, int N, typename T>
RT_INLINE void rt_product_of_rows(float (&c)[ROWS][N][4], const T *left, int row, const T *right, int column)
{
    constexpr int PITCH = RtTile<D>::PITCH;
#pragma unroll RtTile < D> ::STEPS
    for (int k = 0; k < RtTile<D>::WIDE; k += 16) {
        uint32_t a[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            rt_left<PITCH>(a[i], left, row + 16 * i, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            rt_right_of_rows<PITCH>(b, right, column + 8 * n, k);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                rt_mma(c[i][n], a[i], b[0], b[1], T{});
                rt_mma(c[i][n + 1], a[i], b[2], b[3], T{});
            }
        }
    }
}

/* c[16 * ROWS, 8 * N] += weights[16 * ROWS, 8 * K] * (right tile from column `column` on). */
template <int D, int ROWS, int K, int N, typename T>
RT_INLINE void rt_product_of_weights(float (&c)[ROWS][N][4], const float (&weight)[ROWS][K][4], const T *right,
                                     int column)
{
    constexpr int PITCH = RtTile<D>::PITCH;
#pragma unroll
    for (int k = 0; k < K; k += 2) {
        uint32_t a[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            rt_left_of(a[i], weight[i][k], weight[i][k + 1], T{});
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            rt_right<PITCH>(b, right, 8 * k, column + 8 * n);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                rt_mma(c[i][n], a[i], b[0], b[1], T{});
                rt_mma(c[i][n + 1], a[i], b[2], b[3], T{});
            }
        }
    }
}

template <int ROWS, int N> RT_INLINE void rt_clear_pieces(float (&c)[ROWS][N][4])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                c[i][n][e] = 0;
}

/* --- Visibility ------------------------------------------------------------------------------- */

/* The minimum and maximum distance from queries to keys, including nonexistent queries and keys. */
struct RtAhead {
    int64_t least, most;
};

RT_INLINE RtAhead rt_ahead(int64_t query, int rows, int64_t key, int columns, const RtAttend s)
{
    return { rt_attend_key_position(key, s) - rt_attend_position(query + rows - 1, s),
             rt_attend_key_position(key + columns - 1, s) - rt_attend_position(query, s) };
}

/* Does some query of a tile see some key of another? */
RT_INLINE bool rt_sees_any(const RtAhead ahead, const RtAttend s)
{
    return (!s.causal || ahead.least <= 0) && (s.window == 0 || (ahead.most > -s.window && ahead.least < s.window));
}

/* Does every query see every key? */
RT_INLINE bool rt_sees_all(const RtAhead ahead, const RtAttend s)
{
    return (!s.causal || ahead.most <= 0) && (s.window == 0 || (ahead.most < s.window && ahead.least > -s.window));
}

/* --- Segments --------------------------------------------------------------------------------- */

/* Of a head's queries and keys, from elements of the arrays on: numbers need fewer registers than pointers.  NULL:
 * there are none, which is known when a kernel is compiled. */
struct RtSegments {
    const int32_t *query, *key;
    int query_at, key_at;
};

RT_INLINE RtSegments rt_segments_of(const int32_t *query, const int32_t *key, int64_t b, int64_t h, const RtAttend s)
{
    return { query, key, (int)(b * s.query_segment.batch + h * s.query_segment.head),
             (int)(b * s.key_segment.batch + h * s.key_segment.head) };
}

RT_INLINE int32_t rt_segment_of_query(const RtSegments of, int query, const RtAttend s)
{
    return of.query[of.query_at + query * (int)s.query_segment.row];
}

RT_INLINE int32_t rt_segment_of_key(const RtSegments of, int key, const RtAttend s)
{
    return of.key[of.key_at + key * (int)s.key_segment.row];
}

/* The least and the greatest segment of a tile. */
struct RtRange {
    int32_t low, high;
};

RT_INLINE RtRange rt_range_with(const RtRange range, int32_t segment)
{
    return { RtMin::of(range.low, segment), RtMax::of(range.high, segment) };
}

RT_INLINE RtRange rt_range_of_warp(const RtRange range)
{
    return { rt_warp<RtMin>(range.low), rt_warp<RtMax>(range.high) };
}

/* Of the rows from `query` or `key` on that exist; called by whole warps. */
template <int ROWS> RT_INLINE RtRange rt_range_of_queries(const RtSegments of, int query, const RtAttend s)
{
    RtRange range = { INT32_MAX, INT32_MIN };
    for (int i = query + threadIdx.x % 32; of.query && i < query + ROWS && i < s.queries; i += 32)
        range = rt_range_with(range, rt_segment_of_query(of, i, s));
    return of.query ? rt_range_of_warp(range) : range;
}

template <int ROWS> RT_INLINE RtRange rt_range_of_keys(const RtSegments of, int key, const RtAttend s)
{
    RtRange range = { INT32_MAX, INT32_MIN };
    for (int i = key + threadIdx.x % 32; of.key && i < key + ROWS && i < s.keys; i += 32)
        range = rt_range_with(range, rt_segment_of_key(of, i, s));
    return of.key ? rt_range_of_warp(range) : range;
}

/* May some query and some key be of one segment?  Exact where segments follow each other. */
RT_INLINE bool rt_ranges_meet(const RtRange a, const RtRange b) { return a.low <= b.high && b.low <= a.high; }

/* Are all of them of one segment? */
RT_INLINE bool rt_ranges_equal(const RtRange a, const RtRange b) { return a.low == b.high && b.low == a.high; }

RT_INLINE bool rt_segments_equal(const RtSegments of, int query, int key, const RtAttend s)
{
    return !of.query ||
           (query < s.queries && key < s.keys && rt_segment_of_query(of, query, s) == rt_segment_of_key(of, key, s));
}

/* --- Scores ----------------------------------------------------------------------------------- */

constexpr float RT_LOG2E = 1.4426950408889634f;

/* Logarithms here are to base 2: exp(scale * x) = 2^(rt_scale2 * x).  Scores that are more than scaled products have
 * this factor already. */
RT_INLINE float rt_scale2(const RtAttend s) { return rt_attend_shapes(s) ? 1.0f : s.scale * RT_LOG2E; }

/* tanh(x), with an absolute error of 2^-23. */
RT_INLINE float rt_tanh(float x) { return 1.0f - 2.0f / (rt_exp2(x * (2.0f * RT_LOG2E)) + 1.0f); }

/* Of a query and a key, or the last ones where there are none. */
RT_INLINE float rt_bias_at(const float *bias, int query, int key, const RtAttend s)
{
    return bias[rt_least(query, (int)s.queries - 1) * s.bias.row + rt_least(key, (int)s.keys - 1) * s.bias.key];
}

/* A product becomes the score that the softmax takes, times log2(e); `slope`: its derivative by the scaled product.
 * `bias`: of the head. */
RT_INLINE float rt_attend_shape(float product, float &slope, const float *bias, int query, int key, const RtAttend s)
{
    float score = product * (s.scale * RT_LOG2E);
    slope = 1.0f;
    if (s.softcap != 0) {
        const float capped = rt_tanh(product * (s.scale / s.softcap));
        slope = 1.0f - capped * capped;
        score = capped * (s.softcap * RT_LOG2E);
    }
    return s.has_bias ? score + rt_bias_at(bias, query, key, s) * RT_LOG2E : score;
}

/* Replaces each of a warp's scores by `change(score, query, key)`.  Its queries are from `query` on. */
template <int PIECES, int N, typename F>
RT_INLINE void rt_attend_each(float (&score)[PIECES][N][4], int query, int key, F change)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                score[i][n][e] =
                    change(score[i][n][e], query + 16 * i + lane / 4 + e / 2 * 8, key + 8 * n + lane % 4 * 2 + e % 2);
}

template <int PIECES, int N>
RT_INLINE void rt_attend_shape_all(float (&score)[PIECES][N][4], const float *bias, int query, int key,
                                   const RtAttend s)
{
    rt_attend_each(score, query, key, [&](float product, int row, int column) {
        float slope;
        return rt_attend_shape(product, slope, bias, row, column, s);
    });
}

/* The part of an operand for one sequence and head. */
template <typename T> RT_INLINE T *rt_head_of(T *at, const RtAttendStride stride, int64_t b, int64_t h, int64_t g)
{
    return at + b * stride.batch + h * stride.head + g * stride.group;
}

#endif
