/* cumulative.h -- sums and maxima of the elements up to each one. */
#ifndef MPC_KERNELS_CUMULATIVE_H
#define MPC_KERNELS_CUMULATIVE_H

#include "element.h"
#include "integer.h"
#include "shape.h"

RT_INLINE void rt_cumulative_floats(const void *x, float *y, const RtCumulative s)
{
    float sum = 0;
    for (int64_t i = 0; i < s.count; i++) {
        const int64_t at = s.reverse ? s.count - 1 - i : i;
        const float before = sum;
        sum += rt_load(x, at * s.x.row, s.type);
        y[at * s.y.row] = s.exclusive ? before : sum;
    }
}

RT_INLINE void rt_cumulative_integers(const int32_t *x, int32_t *y, const RtCumulative s)
{
    int32_t so_far = s.is_max ? INT32_MIN : 0;
    for (int64_t i = 0; i < s.count; i++) {
        const int64_t at = s.reverse ? s.count - 1 - i : i;
        const int32_t before = so_far, now = x[at * s.x.row];
        so_far = !s.is_max ? rt_add_i32(before, now) : now > before ? now : before;
        y[at * s.y.row] = s.exclusive ? before : so_far;
    }
}

/* Order: parallel over rows, each written by one thread, from its first element to its last. */
RT_KERNEL void rt_cumulative(const void *x, void *y, const RtCumulative s)
{
    const int64_t size = s.type == RT_BF16 || s.type == RT_F16 ? 2 : 4;
#pragma omp parallel for collapse(2)
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t m = 0; m < s.middle; m++) {
            const char *from = (const char *)x + (o * s.x.outer + m * s.x.middle) * size;
            char *to = (char *)y + (o * s.y.outer + m * s.y.middle) * (int64_t)sizeof(float);
            if (s.type == RT_I32)
                rt_cumulative_integers((const int32_t *)(const void *)from, (int32_t *)(void *)to, s);
            else
                rt_cumulative_floats(from, (float *)(void *)to, s);
        }
}

#endif
