/* activation.h -- activation and softmax functions that are more than one call, in a form that vectorises.
 *
 * The tanh of gelu's approximation is written with one exponential: with u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh
 * u) / 2 = 1 / (1 + exp(-2u)).  There is no cancellation, and if the exponential overflows the quotient is the correct
 * limit.
 */
#ifndef MPC_KERNELS_ACTIVATION_H
#define MPC_KERNELS_ACTIVATION_H

#include "element.h"

/* 0.5 x (1 + tanh(u)) */
RT_INLINE float rt_gelu_tanh(float x)
{
    const float twice_u = x * (1.5957691216f + 0.0713548163f * x * x);
    return x / (1.0f + expf(-twice_u));
}

/* With share = (1 + tanh u) / 2: share + x (2u)' share (1 - share), where 1 - share would cancel for large u. */
RT_INLINE float rt_gelu_tanh_slope(float x)
{
    const float twice_u = x * (1.5957691216f + 0.0713548163f * x * x);
    const float twice_u_slope = 1.5957691216f + 0.2140644488f * x * x;
    const float tail = expf(-fabsf(twice_u)), most = 1.0f / (1.0f + tail), least = tail * most;
    return (x < 0 ? least : most) + x * twice_u_slope * most * least;
}

/* x times the normal distribution up to x */
RT_INLINE float rt_gelu(float x) { return 0.5f * x * (1.0f + erff(0.7071067812f * x)); }

RT_INLINE float rt_gelu_slope(float x)
{
    return 0.5f * (1.0f + erff(0.7071067812f * x)) + 0.3989422804f * x * expf(-0.5f * x * x);
}

/* log(1 + exp(x)) */
RT_INLINE float rt_softplus(float x) { return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x))); }

/* log(exp(a) + exp(b)); minus infinity is no part. */
RT_INLINE float rt_lse_add(float a, float b)
{
    const float most = a > b ? a : b, base = most == -INFINITY ? 0.0f : most;
    return base + logf(expf(a - base) + expf(b - base));
}

/* exp(a - b), of a part a in the whole b */
RT_INLINE float rt_lse_share(float a, float b) { return a == -INFINITY ? 0.0f : expf(a - b); }

#endif
