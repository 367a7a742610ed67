/* narrow.h -- numbers of 8 bits: e4m3, with 4 bits of exponent, 3 of fraction and no infinity (Micikevicius et al., FP8
 * Formats for Deep Learning, 2022), held in f32.
 *
 * The scales of blocks are powers of two, so scaling is exact, and what was rounded is a bf16 number.
 */
#ifndef MPC_KERNELS_NARROW_H
#define MPC_KERNELS_NARROW_H

#include "element.h"

/* To nearest even, without a branch; below 2^-6 by adding 2^14, which aligns the last bit.  Numbers above 448 become
 * 448; infinity and NaN stay what they are. */
RT_INLINE float rt_round_e4m3(float x)
{
    const uint32_t bits = rt_bits_of_float(x), magnitude = bits & 0x7FFFFFFF, sign = bits & 0x80000000,
                   most = 0x43E00000;
    const uint32_t normal = (magnitude + 0x7FFFF + (magnitude >> 20 & 1)) & 0xFFF00000;
    const uint32_t subnormal = rt_bits_of_float(rt_float_of_bits(magnitude) + 0x1p14f - 0x1p14f);
    const uint32_t rounded = magnitude < 0x3C800000 ? subnormal : normal, finite = rounded < most ? rounded : most;
    return rt_float_of_bits((magnitude < 0x7F800000 ? finite : magnitude) | sign);
}

/* The 8 bits of one of these numbers; infinity becomes NaN. */
RT_INLINE uint8_t rt_e4m3_of_float(float x)
{
    const uint32_t bits = rt_bits_of_float(x), magnitude = bits & 0x7FFFFFFF, sign = bits >> 24 & 0x80;
    const uint32_t subnormal = (uint32_t)(rt_float_of_bits(magnitude < 0x3C800000 ? magnitude : 0) * 0x1p9f);
    const uint32_t normal = magnitude < 0x7F800000 ? (magnitude >> 20) - 960 : 0x7F; /* exponents from 127 - 7 on */
    return (uint8_t)(sign | (magnitude < 0x3C800000 ? subnormal : normal));
}

/* The power of two with which a number of this size is above 224 and at most 448; of 0 and very small ones the largest
 * whose inverse is no subnormal number. */
RT_INLINE float rt_scale_e4m3(float size)
{
    const uint32_t bits = rt_bits_of_float(size) & 0x7FFFFFFF, largest = 253;
    const uint32_t exponent = 262 - (bits >> 23) - ((bits & 0x7FFFFF) > 0x600000);
    return rt_float_of_bits((exponent < largest ? exponent : largest) << 23);
}

#endif
