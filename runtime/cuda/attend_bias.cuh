/* attend_bias.cuh -- the gradient of the bias of attention: kernels/attend_bias.h on the device, in plain f32 for
 * operands of every type.
 *
 * A block has a tile of the bias, and iterates over what shares it: the order of all sums is fixed.  Threads as in
 * attend_f32.cuh.
 */
#ifndef MPC_CUDA_ATTEND_BIAS_H
#define MPC_CUDA_ATTEND_BIAS_H

#include "attend_f32.cuh"

/* The element of a dim of `count` that a block has, and of the dims outside of it; the first of one that the bias
 * lacks. */
RT_INLINE int rt_bias_take(int &rest, int64_t stride, int64_t count)
{
    const int at = stride ? rest % (int)count : 0;
    rest = stride ? rest / (int)count : rest;
    return at;
}

/* The end of what a block sums: its own element, or all of a dim that the bias lacks. */
RT_INLINE int rt_bias_end(int64_t stride, int at, int64_t count) { return stride ? at + 1 : (int)count; }

template <int D, typename T>
RT_INLINE void rt_attend_bias_grad(const T *q, const T *k, const T *v, const float *share, const float *lse,
                                   const T *dy, const float *bias, const int32_t *query_segment,
                                   const int32_t *key_segment, float *dbias, const RtAttend s)
{
    using Tiles = RtPlainTiles<D>;
    constexpr int TILE = Tiles::TILE, N = Tiles::EACH;
    RT_DYNAMIC_SHARED(bytes);
    const RtPlainMemory<D> m(bytes);
    const RtAttendPlane of = s.dbias;
    const int count = (int)s.queries, end = (int)s.keys, column = threadIdx.x % 16, row = threadIdx.x / 16;
    int rest = blockIdx.x;
    const int key = rt_bias_take(rest, 1, (end + TILE - 1) / TILE) * TILE;
    const int query = rt_bias_take(rest, of.row, (count + TILE - 1) / TILE) * TILE;
    const int g0 = rt_bias_take(rest, of.group, s.group), h0 = rt_bias_take(rest, of.head, s.heads), b0 = rest;
    float sum[N][N];
    rt_plain_clear(sum);
    for (int b = b0; b < rt_bias_end(of.batch, b0, s.batch); b++)
        for (int h = h0; h < rt_bias_end(of.head, h0, s.heads); h++) {
            const RtSegments segments = rt_segments_of(query_segment, key_segment, b, h, s);
            __syncthreads(); /* the head before has been read */
            rt_plain_load<D>(m.keys, rt_head_of(k, s.k, b, h, 0), s.k.row, key, end);
            rt_plain_load<D>(m.values, rt_head_of(v, s.v, b, h, 0), s.v.row, key, end);
            for (int g = g0; g < rt_bias_end(of.group, g0, s.group); g++)
                for (int at = query; at < (of.row ? query + 1 : count); at += TILE) {
                    float weight[N][N], slope[N][N];
                    __syncthreads(); /* the tile before has been read */
                    rt_plain_load<D>(m.queries, rt_head_of(q, s.q, b, h, g), s.q.row, at, count);
                    rt_plain_load<D>(m.gradients, rt_head_of(dy, s.dy, b, h, g), s.dy.row, at, count);
                    __syncthreads();
                    rt_plain_weigh<D, false>(weight, slope, m.queries, m.keys, m.values, m.gradients,
                                             rt_head_of(lse, s.lse, b, h, g), rt_head_of(share, s.share, b, h, g),
                                             s.share.row, rt_bias_of(bias, b, h, g, s), at, key, segments, s);
#pragma unroll
                    for (int i = 0; i < N; i++)
#pragma unroll
                        for (int j = 0; j < N; j++)
                            sum[i][j] += slope[i][j];
                }
        }
    float *to = dbias + b0 * of.batch + h0 * of.head + g0 * of.group;
    if (of.row) {
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                if (query + row + 16 * i < count && key + column + 16 * j < end)
                    to[(query + row + 16 * i) * of.row + (key + column + 16 * j) * of.key] = sum[i][j];
        return;
    }
    rt_plain_put<D>(m.weights, sum);
    __syncthreads();
    for (int j = threadIdx.x; j < TILE && key + j < end; j += blockDim.x) {
        float all = 0;
        for (int i = 0; i < TILE; i++)
            all += m.weights[i * Tiles::SCORES + j];
        to[(key + j) * of.key] = all;
    }
}

#endif
