/* rope.h -- rotary position embedding (Su et al., arXiv 2104.09864, equation 34). */
#ifndef MPC_KERNELS_ROPE_H
#define MPC_KERNELS_ROPE_H

#include "element.h"
#include "shape.h"

/* Rotates pair i at position p by the angle p / base^(2i / feature).  Order: parallel over positions, each written by
 * one thread. */
RT_INLINE void rt_rope(const void *x, void *y, const RtRope s)
{
    const int64_t half = s.feature / 2, step = s.interleaved ? 2 : 1, other = s.interleaved ? 1 : half;
#pragma omp parallel for
    for (int64_t t = 0; t < s.seq; t++) {
        float cosine[half], sine[half], from[2 * half], to[2 * half];
        const int64_t position = s.first_position + t + (t >= s.jump_from ? s.jump : 0);
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)position * pow(s.base, -2.0 * (double)i / (double)s.feature);
            cosine[i] = (float)cos(angle);
            sine[i] = (float)(s.inverse ? -sin(angle) : sin(angle));
        }
        for (int64_t o = 0; o < s.outer; o++)
            for (int64_t m = 0; m < s.middle; m++) {
                rt_load_row(x, o * s.x.outer + t * s.x.seq + m * s.x.middle, s.feature, s.type, from);
#pragma omp simd
                for (int64_t i = 0; i < half; i++) {
                    const float a = from[i * step], b = from[i * step + other];
                    to[i * step] = a * cosine[i] - b * sine[i];
                    to[i * step + other] = a * sine[i] + b * cosine[i];
                }
                rt_store_row(y, o * s.y.outer + t * s.y.seq + m * s.y.middle, s.feature, s.type, to);
            }
    }
}

#endif
