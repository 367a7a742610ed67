/* rope.h -- rotary position embedding (Su et al., arXiv 2104.09864, equation 34). */
#ifndef MPC_KERNELS_ROPE_H
#define MPC_KERNELS_ROPE_H

#include "element.h"
#include "shape.h"

RT_INLINE void rt_rope_angles(int64_t position, float *cosine, float *sine, const RtRope s)
{
    for (int64_t i = 0; i < s.feature / 2; i++) {
        const double angle = (double)position / s.stretch * pow(s.base, -2.0 * (double)i / (double)s.feature);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)(s.inverse ? -sin(angle) : sin(angle));
    }
}

/* Rotates pair i at position p by the angle p / stretch / base^(2i / feature).  p is given, or the place in the
 * sequence.  Order: parallel over the sequence, each place written by one thread. */
RT_KERNEL void rt_rope(const void *x, const int32_t *position, void *y, const RtRope s)
{
    const int64_t half = s.feature / 2, step = s.interleaved ? 2 : 1, other = s.interleaved ? 1 : half;
#pragma omp parallel for
    for (int64_t t = 0; t < s.seq; t++) {
        float cosine[half], sine[half], from[2 * half], to[2 * half];
        int64_t last = rt_position(s.part, t); /* whose angles these are */
        bool is_known = false;
        for (int64_t o = 0; o < s.outer; o++)
            for (int64_t m = 0; m < s.middle; m++) {
                const int64_t own =
                    position ? position[o * s.position.outer + t * s.position.seq + m * s.position.middle] : last;
                if (!is_known || own != last)
                    rt_rope_angles(own, cosine, sine, s);
                last = own, is_known = true;
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
