/* element.h -- elements in memory and in registers: storage types, and functions that vectorise. */
#ifndef MPC_KERNELS_ELEMENT_H
#define MPC_KERNELS_ELEMENT_H

#include "../convert.h"
#include "../rt.h"

#include <math.h>
#include <stdint.h>

#ifdef __OPTIMIZE__
#define RT_INLINE static inline __attribute__((always_inline))
#else
#define RT_INLINE static inline /* one copy of each, which takes half the time to compile */
#endif

/* Called, never inlined: a row or a tile takes much longer than the call, and many copies take long to compile. */
#define RT_OUTLINE static __attribute__((noinline, unused))

/* Of a kernel that trainers link: library.c makes it external, tests include it. */
#ifndef RT_KERNEL
#define RT_KERNEL RT_INLINE
#endif

/* glibc has vector versions of these (libmvec; within 4 units in the last place); gcc uses them if they are declared
 * so. */
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
__attribute__((simd("notinbranch"))) float log1pf(float);
#endif
#endif

RT_INLINE float rt_load_bf16(rt_bf16 x) { return rt_float_of_bits((uint32_t)x << 16); }

/* To nearest even, without a branch; a NaN stays one. */
RT_INLINE rt_bf16 rt_store_bf16(float x)
{
    const uint32_t bits = rt_bits_of_float(x), rounded = bits + 0x7FFF + (bits >> 16 & 1);
    return (rt_bf16)(((bits & 0x7FFFFFFF) > 0x7F800000 ? bits | 0x400000 : rounded) >> 16);
}

/* Shifts fraction and exponent into position and multiplies by 2^(127 - 15) to correct the exponent, including
 * subnormals; infinity and NaN keep all exponent bits.  No branch, no _Float16: gcc converts that one element at a
 * time. */
RT_INLINE float rt_load_f16(rt_f16 x)
{
    const uint32_t magnitude = (uint32_t)(x & 0x7FFF) << 13, sign = (uint32_t)(x & 0x8000) << 16;
    const uint32_t finite = rt_bits_of_float(rt_float_of_bits(magnitude) * 0x1p112f);
    return rt_float_of_bits(((x & 0x7C00) == 0x7C00 ? magnitude | 0x7F800000 : finite) | sign);
}

/* To nearest even: by integers, or for subnormals by adding 1/2, which aligns the last bit. */
RT_INLINE rt_f16 rt_store_f16(float x)
{
    const uint32_t bits = rt_bits_of_float(x), magnitude = bits & 0x7FFFFFFF, sign = bits >> 16 & 0x8000;
    const uint32_t normal = (magnitude - (112u << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    const uint32_t subnormal = rt_bits_of_float(rt_float_of_bits(magnitude) + 0.5f) - 0x3F000000u;
    const uint32_t half = magnitude > 0x7F800000    ? 0x7E00    /* NaN */
                          : magnitude >= 0x47800000 ? 0x7C00    /* 65536 and more: infinity */
                          : magnitude < 0x38800000  ? subnormal /* below 2^-14 */
                                                    : normal;
    return (rt_f16)(half | sign);
}

/* Element `at` of an array; for use in loops only with constant type. */
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

/* Converts rows of elements from and to f32, testing the type once: a kernel's parallel region becomes a function
 * before constants are folded, so that inside it no type is a constant. */
RT_OUTLINE void rt_load_row(const void *restrict array, int64_t at, int64_t count, RtType type, float *restrict row)
{
    switch (type) {
    case RT_BF16:
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            row[i] = rt_load_bf16(((const rt_bf16 *)array)[at + i]);
        break;
    case RT_F16:
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            row[i] = rt_load_f16(((const rt_f16 *)array)[at + i]);
        break;
    default:
        memcpy(row, (const float *)array + at, (size_t)count * sizeof *row);
    }
}

RT_OUTLINE void rt_store_row(void *restrict array, int64_t at, int64_t count, RtType type, const float *restrict row)
{
    switch (type) {
    case RT_BF16:
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            ((rt_bf16 *)array)[at + i] = rt_store_bf16(row[i]);
        break;
    case RT_F16:
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            ((rt_f16 *)array)[at + i] = rt_store_f16(row[i]);
        break;
    default:
        memcpy((float *)array + at, row, (size_t)count * sizeof *row);
    }
}

#endif
