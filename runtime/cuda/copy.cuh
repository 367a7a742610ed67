/* copy.cuh -- boxes of elements from one layout to another: pad and concat. */
#ifndef MPC_CUDA_COPY_H
#define MPC_CUDA_COPY_H

#include "element.cuh"

/* Part of a tensor: elements first ... first + count - 1 along one dim, all of the others. */
struct RtBox {
    int rank, dim;
    int64_t first, count;
    int64_t size[8], to[8], from[8]; /* sizes of the whole, the innermost dim last; strides, which count elements */
};

/* Elements of `to` in the box are those of `from`, from its first on; others are set to zero if `clears`, else
 * unchanged.  One thread per element. */
template <typename T> RT_INLINE void rt_copy_box(T *to, const T *from, bool clears, const RtBox s)
{
    int64_t left = (int64_t)blockIdx.x * 256 + threadIdx.x, out = 0, in = 0;
    bool is_in = true;
#pragma unroll
    for (int i = s.rank - 1; i >= 0; i--) {
        const int64_t at = i > 0 ? left % s.size[i] : left;
        left /= s.size[i];
        if (i == 0 && at >= s.size[0])
            return;
        is_in = is_in && (i != s.dim || (at >= s.first && at < s.first + s.count));
        out += at * s.to[i];
        in += (i == s.dim ? at - s.first : at) * s.from[i];
    }
    if (is_in)
        to[out] = from[in];
    else if (clears)
        to[out] = T{};
}

#endif
