/* element.cuh -- elements in memory and in registers on the device: what kernels/element.h is on the processor.
 *
 * A pack is some neighbours that one thread loads and stores at once, 16 bytes at best; arithmetic is f32.
 */
#ifndef MPC_CUDA_ELEMENT_H
#define MPC_CUDA_ELEMENT_H

#include <machine.cuh> /* by the path: where kernels run on a processor, tests have one of their own */

#include "../types.h"

/* This header stands for kernels/element.h: what of runtime/kernels/ only computes is the same text on both sides. */
#define MPC_KERNELS_ELEMENT_H

/* 0 is false; padding, which is read and not used, holds anything. */
typedef uint8_t rt_bool;

struct rt_bf16 {
    uint16_t bits;
};

struct rt_f16 {
    uint16_t bits;
};

RT_INLINE float rt_load_bf16(rt_bf16 x) { return rt_float_of_bits((uint32_t)x.bits << 16); }
RT_INLINE rt_bf16 rt_store_bf16(float x) { return rt_bf16{ (uint16_t)rt_pack_bf16(x, 0.0f) }; }
RT_INLINE float rt_load_f16(rt_f16 x) { return rt_float_of_f16(x.bits); }
RT_INLINE rt_f16 rt_store_f16(float x) { return rt_f16{ (uint16_t)rt_pack_f16(x, 0.0f) }; }

/* The same for templates, by the type of the element. */
RT_INLINE float rt_value(rt_bf16 x) { return rt_load_bf16(x); }
RT_INLINE float rt_value(rt_f16 x) { return rt_load_f16(x); }
RT_INLINE float rt_value(float x) { return x; }
RT_INLINE int32_t rt_value(int32_t x) { return x; }
RT_INLINE bool rt_value(rt_bool x) { return x; }
RT_INLINE void rt_set(rt_bf16 &to, float x) { to = rt_store_bf16(x); }
RT_INLINE void rt_set(rt_f16 &to, float x) { to = rt_store_f16(x); }
RT_INLINE void rt_set(float &to, float x) { to = x; }
RT_INLINE void rt_set(int32_t &to, int32_t x) { to = x; }
RT_INLINE void rt_set(rt_bool &to, bool x) { to = x; }

/* N elements on the boundary that a load of all of them asks for.  Elements of 16 bits stay two in a register. */
template <typename T, int N, bool IS_HALVES = sizeof(T) == 2 && N % 2 == 0>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) RtPack {
    T at[N];
    __device__ __forceinline__ T &operator[](int i) { return at[i]; }
    __device__ __forceinline__ const T &operator[](int i) const { return at[i]; }
    __device__ __forceinline__ void set(int i, T x) { at[i] = x; }
};

template <typename T, int N> struct alignas(2 * N < 16 ? 2 * N : 16) RtPack<T, N, true> {
    uint32_t two[N / 2];
    __device__ __forceinline__ T operator[](int i) const { return T{ (uint16_t)(two[i / 2] >> (16 * (i % 2))) }; }
    __device__ __forceinline__ void set(int i, T x)
    {
        two[i / 2] = i % 2 ? (two[i / 2] & 0xFFFFu) | (uint32_t)x.bits << 16 : (two[i / 2] & 0xFFFF0000u) | x.bits;
    }
};

template <int N, typename T> RT_INLINE RtPack<T, N> rt_load_pack(const T *from)
{
    RT_ON_BOUNDARY(from, alignof(RtPack<T, N>));
    return *reinterpret_cast<const RtPack<T, N> *>(from);
}

template <int N, typename T> RT_INLINE RtPack<T, N> rt_all(T x)
{
    RtPack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++)
        pack[i] = x;
    return pack;
}

/* The first `count` of a pack that goes over the end of a row. */
template <int N, typename T> RT_INLINE RtPack<T, N> rt_load_some(const T *from, int count)
{
    if (count == N)
        return rt_load_pack<N>(from);
    RtPack<T, N> pack = {};
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < count)
            pack.set(i, from[i]);
    return pack;
}

template <int N, typename T> RT_INLINE RtPack<T, N> rt_elements(const T *, const RtPack<T, N> &values)
{
    return values;
}

template <int N> RT_INLINE RtPack<rt_bool, N> rt_elements(const rt_bool *, const RtPack<bool, N> &values)
{
    RtPack<rt_bool, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++)
        pack.set(i, values[i]);
    return pack;
}

template <int N> RT_INLINE RtPack<rt_bf16, N> rt_elements(const rt_bf16 *, const RtPack<float, N> &values)
{
    RtPack<rt_bf16, N> pack;
    if constexpr (N == 1) {
        pack.set(0, rt_store_bf16(values[0]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2)
            pack.two[i / 2] = rt_pack_bf16(values[i], values[i + 1]);
    }
    return pack;
}

template <int N> RT_INLINE RtPack<rt_f16, N> rt_elements(const rt_f16 *, const RtPack<float, N> &values)
{
    RtPack<rt_f16, N> pack;
    if constexpr (N == 1) {
        pack.set(0, rt_store_f16(values[0]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2)
            pack.two[i / 2] = rt_pack_f16(values[i], values[i + 1]);
    }
    return pack;
}

template <int N, typename T, typename V> RT_INLINE void rt_store_pack(T *to, const RtPack<V, N> &values)
{
    RT_ON_BOUNDARY(to, alignof(RtPack<T, N>));
    *reinterpret_cast<RtPack<T, N> *>(to) = rt_elements(to, values);
}

template <int N, typename T, typename V> RT_INLINE void rt_store_some(T *to, const RtPack<V, N> &values, int count)
{
    if (count == N) {
        rt_store_pack(to, values);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < count)
            rt_set(to[i], values[i]);
}

/* e^x in two instructions.  The product is off by half a unit in its last place, so the result by |x| / 2 units in its
 * own: where softmax, sigmoid and gelu have large numbers, x is small. */
RT_INLINE float rt_exp(float x) { return rt_exp2(x * 1.4426950408889634f); }
#define expf rt_exp

template <typename T> RT_INLINE T rt_least(T a, T b) { return a < b ? a : b; }

#endif
