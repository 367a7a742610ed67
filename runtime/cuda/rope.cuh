/* rope.cuh -- rotary position embedding: kernels/rope.h on the device. */
#ifndef MPC_CUDA_ROPE_H
#define MPC_CUDA_ROPE_H

#include "element.cuh"

#include "../kernels/shape.h"

/* Rows that one thread rotates by the same angles. */
enum { RT_ROPE_ROWS = 8 };

/* N elements as a pack, which has to be on a boundary, or one by one. */
template <int N, bool TOGETHER, typename T> RT_INLINE RtPack<T, N> rt_load_pairs(const T *from)
{
    if (TOGETHER)
        return rt_load_pack<N>(from);
    RtPack<T, N> pairs = {};
#pragma unroll
    for (int i = 0; i < N; i++)
        pairs.set(i, from[i]);
    return pairs;
}

template <int N, bool TOGETHER, typename T> RT_INLINE void rt_store_pairs(T *to, const RtPack<float, N> &pairs)
{
    if (TOGETHER) {
        rt_store_pack(to, pairs);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        rt_set(to[i], pairs[i]);
}

/* Cosines [rows, feature / 2], then sines: in double precision, so they are computed once for all heads. */
template <typename T>
RT_INLINE void rt_rope_angles(const T *, const int32_t *position, T *, float *scratch, const RtRope s)
{
    const int64_t half = s.feature / 2, rows = rt_rope_rows(s);
    const int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x, row = item / half;
    if (row >= rows)
        return;
    const int64_t middle = s.position.middle ? s.middle : 1, t = row / middle % s.seq;
    int64_t place = rt_position(s.part, t);
    if (position)
        place =
            position[row / middle / s.seq * s.position.outer + t * s.position.seq + row % middle * s.position.middle];
    const double angle = (double)place / s.stretch * pow(s.base, -2.0 * (double)(item % half) / (double)s.feature);
    scratch[item] = (float)cos(angle);
    scratch[rows * half + item] = (float)(s.inverse ? -sin(angle) : sin(angle));
}

/* WIDTH pairs of one position, in RT_ROPE_ROWS of the rows [outer, middle] that have it.  TOGETHER: neighbours are read
 * at once, since each row begins where that is allowed. */
template <int WIDTH, bool TOGETHER, typename T>
RT_INLINE void rt_rope(const T *x, const int32_t *position, T *y, const float *scratch, const RtRope s)
{
    const int64_t half = s.feature / 2, packs = half / WIDTH, rows = s.outer * s.middle;
    const int64_t groups = (rows + RT_ROPE_ROWS - 1) / RT_ROPE_ROWS;
    const int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (item >= s.seq * groups * packs)
        return;
    const int64_t i = item % packs * WIDTH, t = item / packs % s.seq, group = item / packs / s.seq;
    const float *const sines = scratch + rt_rope_rows(s) * half;
    RtPack<float, WIDTH> cosine = rt_load_pack<WIDTH>(scratch + t * half + i);
    RtPack<float, WIDTH> sine = rt_load_pack<WIDTH>(sines + t * half + i);
    for (int64_t row = group * RT_ROPE_ROWS; row < rows && row < (group + 1) * RT_ROPE_ROWS; row++) {
        const int64_t o = row / s.middle, m = row % s.middle;
        const T *from = x + o * s.x.outer + t * s.x.seq + m * s.x.middle;
        T *to = y + o * s.y.outer + t * s.y.seq + m * s.y.middle;
        if (position) {
            const int64_t own = rt_rope_row_of(o, t, m, s) * half + i;
            cosine = rt_load_pack<WIDTH>(scratch + own), sine = rt_load_pack<WIDTH>(sines + own);
        }
        if (s.interleaved) {
            const RtPack<T, 2 *WIDTH> pairs = rt_load_pairs<2 * WIDTH, TOGETHER>(from + 2 * i);
            RtPack<float, 2 * WIDTH> turned;
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                const float a = rt_value(pairs[2 * e]), b = rt_value(pairs[2 * e + 1]);
                turned[2 * e] = a * cosine[e] - b * sine[e];
                turned[2 * e + 1] = a * sine[e] + b * cosine[e];
            }
            rt_store_pairs<2 * WIDTH, TOGETHER>(to + 2 * i, turned);
        } else {
            const RtPack<T, WIDTH> low = rt_load_pack<WIDTH>(from + i), high = rt_load_pack<WIDTH>(from + half + i);
            RtPack<float, WIDTH> new_low, new_high;
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                const float a = rt_value(low[e]), b = rt_value(high[e]);
                new_low[e] = a * cosine[e] - b * sine[e];
                new_high[e] = a * sine[e] + b * cosine[e];
            }
            rt_store_pack(to + i, new_low);
            rt_store_pack(to + half + i, new_high);
        }
    }
}

#endif
