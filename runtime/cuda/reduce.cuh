/* reduce.cuh -- sums, maxima and minima over the threads of a warp, and over the warps of a block; sums of exponentials
 * beside a maximum.
 *
 * Every thread gets the same bits as the result; the order is fixed.
 */
#ifndef MPC_CUDA_REDUCE_H
#define MPC_CUDA_REDUCE_H

#include "element.cuh"

#include "../kernels/integer.h"

struct RtSum {
    template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
    static __device__ __forceinline__ int of(int a, int b) { return rt_add_i32(a, b); } /* wraps */
};

struct RtMax {
    template <typename T> static __device__ __forceinline__ T of(T a, T b) { return b > a ? b : a; }
    static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); } /* one instruction */
};

struct RtMin {
    template <typename T> static __device__ __forceinline__ T of(T a, T b) { return b < a ? b : a; }
    static __device__ __forceinline__ float of(float a, float b) { return fminf(a, b); }
};

/* Over all 32 lanes. */
template <typename Op, typename T> RT_INLINE T rt_warp(T x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x = Op::of(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

/* Reduces the partial results of a block's warps in shared memory, with `start` for missing ones; called by all lanes
 * of a warp, after a barrier. */
template <typename Op, int WARPS, typename T> RT_INLINE T rt_warps(const T *parts, T start)
{
    const int lane = (int)threadIdx.x % 32;
    return rt_warp<Op>(lane < WARPS ? parts[lane] : start);
}

/* The first base of a sum of exp(x - base): it is finite also where all x so far are minus infinity. */
#define RT_LEAST (-3.402823466e38f)

/* Makes `most`, the largest x so far, its base. */
RT_INLINE void rt_rescale(float &sum, float &base, float most)
{
    const float next = fmaxf(most, RT_LEAST);
    sum *= expf(base - next);
    base = next;
}

#endif
