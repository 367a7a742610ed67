/* convert.h -- bf16 and f16 from and to f32, exactly and rounded to nearest even: single numbers, as bits, and arrays.
 */
#ifndef MPC_RUNTIME_CONVERT_H
#define MPC_RUNTIME_CONVERT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline float rt_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t rt_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float rt_float_of_bf16(uint16_t bits) { return rt_float_of_bits((uint32_t)bits << 16); }

static inline uint16_t rt_bf16_of_float(float value)
{
    uint32_t bits = rt_bits_of_float(value);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40); /* quiet, and still a NaN */
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static inline float rt_float_of_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3FF;
    if (exponent == 31)
        return rt_float_of_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent == 0) /* subnormal: fraction * 2^-24 */
        return copysignf((float)fraction * 0x1p-24f, rt_float_of_bits(sign));
    return rt_float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t rt_f16_of_float(float value)
{
    uint16_t sign = (uint16_t)(rt_bits_of_float(value) >> 16 & 0x8000);
    float magnitude = fabsf(value);
    if (isnan(value))
        return sign | 0x7E00;
    if (magnitude >= 65520.0f) /* half way from the largest to the next */
        return sign | 0x7C00;
    if (magnitude < 0x1p-14f)
        return sign | (uint16_t)nearbyintf(magnitude * 0x1p24f);
    uint32_t bits = rt_bits_of_float(magnitude);
    bits += 0xFFF + (bits >> 13 & 1);
    return sign | (uint16_t)((bits >> 13) - (112 << 10));
}

/* `count` numbers of 16 bits, bf16 or else f16, from and to f32; neither address needs an alignment. */
static inline void rt_widen(bool is_bf16, const char *from, int64_t count, char *to)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, 2);
        const float value = is_bf16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
        memcpy(to + 4 * i, &value, 4);
    }
}

static inline void rt_narrow(bool is_bf16, const char *from, int64_t count, char *to)
{
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, from + 4 * i, 4);
        const uint16_t bits = is_bf16 ? rt_bf16_of_float(value) : rt_f16_of_float(value);
        memcpy(to + 2 * i, &bits, 2);
    }
}

#endif
