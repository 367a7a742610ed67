/* element.cuh -- elements in memory and in registers on the device: the counterpart of kernels/element.h.
 *
 * A pack is a number of neighbours that one thread loads and stores at once, up to 16 bytes; arithmetic is f32.
 */
#ifndef MPC_CUDA_ELEMENT_H
#define MPC_CUDA_ELEMENT_H

#include <machine.cuh> /* found by the include path: tests that run kernels on a processor have their own */

#include "../types.h"

/* This header replaces kernels/element.h: headers of runtime/kernels/ that only compute are shared by both devices. */
#define MPC_KERNELS_ELEMENT_H

/* A block has 99 KiB of shared memory at most on sm_86, sm_89 and sm_12x, and 163 or more on the others. */
#if __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
#define RT_SMALL_SHARED true
#else
#define RT_SMALL_SHARED false
#endif

/* 0 is false; padding may have any value: it is read, but not used. */
typedef uint8_t rt_bool;

struct rt_bf16 {
    uint16_t bits;
};

struct rt_f16 {
    uint16_t bits;
};

/* Functions that are given an element: part of their callers, where a read of it is seen (tests/cuda/emulator). */
#define RT_OF_ELEMENT static __device__ __forceinline__

RT_OF_ELEMENT float rt_load_bf16(rt_bf16 x) { return rt_float_of_bits((uint32_t)x.bits << 16); }
RT_INLINE rt_bf16 rt_store_bf16(float x) { return rt_bf16{ (uint16_t)rt_pack_bf16(x, 0.0f) }; }
RT_OF_ELEMENT float rt_load_f16(rt_f16 x) { return rt_float_of_f16(x.bits); }
RT_INLINE rt_f16 rt_store_f16(float x) { return rt_f16{ (uint16_t)rt_pack_f16(x, 0.0f) }; }

/* The same for templates, by the type of the element. */
RT_OF_ELEMENT float rt_value(rt_bf16 x) { return rt_load_bf16(x); }
RT_OF_ELEMENT float rt_value(rt_f16 x) { return rt_load_f16(x); }
RT_INLINE float rt_value(float x) { return x; }
RT_INLINE int32_t rt_value(int32_t x) { return x; }
RT_INLINE bool rt_value(rt_bool x) { return x; }
RT_INLINE void rt_set(rt_bf16 &to, float x) { to = rt_store_bf16(x); }
RT_INLINE void rt_set(rt_f16 &to, float x) { to = rt_store_f16(x); }
RT_INLINE void rt_set(float &to, float x) { to = x; }
RT_INLINE void rt_set(int32_t &to, int32_t x) { to = x; }
RT_INLINE void rt_set(rt_bool &to, bool x) { to = x; }

/* N elements, aligned for a single load.  Elements of 16 bits are kept two per register. */
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

template <int N, typename T> RT_OF_ELEMENT RtPack<T, N> rt_all(T x)
{
    RtPack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++)
        pack[i] = x;
    return pack;
}

/* The first `count` elements of a pack that exceeds the end of a row. */
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

/* In shared memory. */
template <int N, typename T> RT_INLINE void rt_keep_pack(T *to, const RtPack<T, N> &values)
{
    RT_ON_BOUNDARY(to, alignof(RtPack<T, N>));
    *reinterpret_cast<RtPack<T, N> *>(to) = values;
}

/* In global memory. */
template <int N, typename T, typename V> RT_INLINE void rt_store_pack(T *to, const RtPack<V, N> &values)
{
    const RtPack<T, N> pack = rt_elements(to, values);
    RT_ON_BOUNDARY(to, alignof(RtPack<T, N>));
    if constexpr (sizeof pack % 16) {
        *reinterpret_cast<RtPack<T, N> *>(to) = pack;
    } else {
#pragma unroll
        for (int i = 0; i < (int)sizeof pack / 16; i++) {
            uint32_t bits[4];
            memcpy(bits, reinterpret_cast<const char *>(&pack) + 16 * i, 16);
            rt_store_16(reinterpret_cast<char *>(to) + 16 * i, bits);
        }
    }
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

/* e^x in two instructions.  The product has an error of half a unit in the last place, and the result one of |x| / 2
 * units: for softmax, sigmoid and gelu, x is small where the result is large. */
RT_INLINE float rt_exp(float x) { return rt_exp2(x * 1.4426950408889634f); }
#define expf rt_exp

template <typename T> RT_INLINE T rt_least(T a, T b) { return a < b ? a : b; }

#endif
