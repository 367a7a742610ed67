/* cumulative.cuh -- sums and maxima of the elements up to each one: kernels/cumulative.h on the device. */
#ifndef MPC_CUDA_CUMULATIVE_H
#define MPC_CUDA_CUMULATIVE_H

#include "element.cuh"

#include "../kernels/integer.h"
#include "../kernels/shape.h"

/* Sums of f32, sums of integers, which wrap, and maxima. */
template <bool IS_MAX> RT_INLINE float rt_cumulate(float a, float b) { return a + b; }
template <bool IS_MAX> RT_INLINE int32_t rt_cumulate(int32_t a, int32_t b)
{
    return !IS_MAX ? rt_add_i32(a, b) : a > b ? a : b;
}

/* A warp has a row, 32 elements at a time: each lane adds those of the lanes before it, at distances of 1, 2, 4, ...
 * (Hillis and Steele, "Data parallel algorithms", CACM 29, 1986). */
template <bool IS_MAX, typename T, typename V> RT_INLINE void rt_cumulative(const T *x, V *y, const RtCumulative s)
{
    const int lane = threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, o = row / s.middle, m = row % s.middle;
    if (o >= s.outer)
        return;
    const T *from = x + o * s.x.outer + m * s.x.middle;
    V *to = y + o * s.y.outer + m * s.y.middle;
    const V none = IS_MAX ? (V)INT32_MIN : (V)0;
    V before = none; /* of the elements before these 32 */
    for (int64_t first = 0; first < s.count; first += 32) {
        const int64_t i = first + lane, at = s.reverse ? s.count - 1 - i : i;
        V sum = i < s.count ? (V)rt_value(from[at * s.x.row]) : none;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const V other = __shfl_sync(0xFFFFFFFFu, sum, lane >= step ? lane - step : lane);
            if (lane >= step)
                sum = rt_cumulate<IS_MAX>(other, sum);
        }
        const V preceding = __shfl_sync(0xFFFFFFFFu, sum, lane > 0 ? lane - 1 : 0);
        const V own = !s.exclusive ? sum : lane > 0 ? preceding : none;
        if (i < s.count)
            to[at * s.y.row] = rt_cumulate<IS_MAX>(before, own);
        before = rt_cumulate<IS_MAX>(before, __shfl_sync(0xFFFFFFFFu, sum, 31));
    }
}

#endif
