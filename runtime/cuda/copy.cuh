/* copy.cuh -- boxes of elements from one layout to another: pad and concat. */
#ifndef MPC_CUDA_COPY_H
#define MPC_CUDA_COPY_H

#include "element.cuh"

enum { RT_BOX_RANK = 8 };

/* Part of a tensor: elements first ... first + count - 1 along one dim, all of the others. */
struct RtBox {
    int rank, dim;
    int64_t first, count;
    /* Sizes of the whole, the innermost dim last; strides, which count elements. */
    int64_t size[RT_BOX_RANK], to[RT_BOX_RANK], from[RT_BOX_RANK];
};

/* Elements of `to` in the box are those of `from`, from its first on; others are set to zero if `clears`, else
 * unchanged.  One thread per element. */
template <typename T> RT_INLINE void rt_copy_box(T *to, const T *from, bool clears, const RtBox s)
{
    int64_t left = (int64_t)blockIdx.x * 256 + threadIdx.x, out = 0, in = 0;
    bool is_in = true;
#pragma unroll /* so that the box needs no memory */
    for (int i = RT_BOX_RANK - 1; i >= 0; i--) {
        if (i >= s.rank)
            continue;
        const int64_t at = i > 0 ? left % s.size[i] : left;
        left = i > 0 ? left / s.size[i] : left;
        is_in = is_in && (i != s.dim || (at >= s.first && at < s.first + s.count));
        out += at * s.to[i];
        in += (i == s.dim ? at - s.first : at) * s.from[i];
    }
    if (left >= s.size[0])
        return;
    if (is_in)
        to[out] = from[in];
    else if (clears)
        to[out] = T{};
}

#endif
