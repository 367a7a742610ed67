/* element.h -- elements in memory and in registers: storage types, and functions that vectorise. */
#ifndef MPC_KERNELS_ELEMENT_H
#define MPC_KERNELS_ELEMENT_H

#include "../convert.h"
#include "../rt.h"

#include <math.h>
#include <stdint.h>

#define RT_INLINE static inline __attribute__((always_inline))

typedef uint16_t rt_bf16, rt_f16; /* as bits; arithmetic is f32 */

/* glibc has these for whole vectors (libmvec; within 4 units in the last place); gcc takes them where it
 * is told that they exist. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
__attribute__((simd("notinbranch"))) float expf(float);
__attribute__((simd("notinbranch"))) float logf(float);
__attribute__((simd("notinbranch"))) float sinf(float);
__attribute__((simd("notinbranch"))) float cosf(float);
__attribute__((simd("notinbranch"))) float powf(float, float);
#if __GLIBC_PREREQ(2, 35)
__attribute__((simd("notinbranch"))) float tanhf(float);
__attribute__((simd("notinbranch"))) float erff(float);
__attribute__((simd("notinbranch"))) float expm1f(float);
#endif
#endif

RT_INLINE float rt_load_bf16(rt_bf16 x) { return rt_float_of_bits((uint32_t)x << 16); }

/* To nearest even, without a branch; a NaN stays one. */
RT_INLINE rt_bf16 rt_store_bf16(float x)
{
    const uint32_t bits = rt_bits_of_float(x), rounded = bits + 0x7FFF + (bits >> 16 & 1);
    return (rt_bf16)(((bits & 0x7FFFFFFF) > 0x7F800000 ? bits | 0x400000 : rounded) >> 16);
}

#if defined(__F16C__) || defined(__AVX512FP16__) || defined(__aarch64__)
RT_INLINE float rt_load_f16(rt_f16 x)
{
    _Float16 half;
    memcpy(&half, &x, sizeof half);
    return (float)half;
}

RT_INLINE rt_f16 rt_store_f16(float x)
{
    const _Float16 half = (_Float16)x;
    rt_f16 bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}
#else
RT_INLINE float rt_load_f16(rt_f16 x) { return rt_float_of_f16(x); }
RT_INLINE rt_f16 rt_store_f16(float x) { return rt_f16_of_float(x); }
#endif

/* Element `at` of an array whose type is a constant where this is inlined. */
RT_INLINE float rt_load(const void *array, int64_t at, RtType type)
{
    switch (type) {
    case RT_BF16:
        return rt_load_bf16(((const rt_bf16 *)array)[at]);
    case RT_F16:
        return rt_load_f16(((const rt_f16 *)array)[at]);
    default:
        return ((const float *)array)[at];
    }
}

RT_INLINE void rt_store(void *array, int64_t at, float x, RtType type)
{
    switch (type) {
    case RT_BF16:
        ((rt_bf16 *)array)[at] = rt_store_bf16(x);
        break;
    case RT_F16:
        ((rt_f16 *)array)[at] = rt_store_f16(x);
        break;
    default:
        ((float *)array)[at] = x;
    }
}

#endif
