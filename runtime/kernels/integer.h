/* integer.h -- arithmetic of i32, and casts to it, that are undefined in C. */
#ifndef MPC_KERNELS_INTEGER_H
#define MPC_KERNELS_INTEGER_H

#include "element.h"

/* These wrap. */
RT_INLINE int32_t rt_add_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
RT_INLINE int32_t rt_sub_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
RT_INLINE int32_t rt_mul_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }

/* a / b, toward zero; 0 for b = 0, as in padding; -2^31 / -1 wraps. */
RT_INLINE int32_t rt_quotient(int32_t a, int32_t b)
{
    const int32_t divisor = b == 0 || b == -1 ? 1 : b, quotient = a / divisor;
    return b == 0 ? 0 : b == -1 ? rt_sub_i32(0, a) : quotient;
}

/* Rounds toward zero; numbers out of range become the nearest i32, NaN becomes 0. */
RT_INLINE int32_t rt_i32_of(float x)
{
    const float above = x > -0x1p31f ? x : x == x ? -0x1p31f : 0.0f;
    return above < 0x1p31f ? (int32_t)above : INT32_MAX;
}

#endif
