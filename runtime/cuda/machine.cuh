/* machine.cuh -- what kernels ask of the machine beyond CUDA C++: conversions, tensor cores, asynchronous copies.
 *
 * Everything that is assembly stands here, each instruction as a function of plain arguments, so that the test that
 * runs kernels on a processor (tests/cuda/emulator/machine.cuh) has one header to stand in for.
 */
#ifndef MPC_CUDA_MACHINE_H
#define MPC_CUDA_MACHINE_H

#include <stdint.h>

#define RT_INLINE static __device__ __forceinline__

#ifndef INFINITY
#define INFINITY __int_as_float(0x7F800000)
#endif

/* The machine itself traps on an address that is not a multiple of the access's size. */
#define RT_ON_BOUNDARY(pointer, bytes)

/* Shared memory whose size the launch gives. */
#define RT_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

RT_INLINE float rt_float_of_bits(uint32_t bits) { return __uint_as_float(bits); }
RT_INLINE uint32_t rt_bits_of_float(float x) { return __float_as_uint(x); }

/* Two numbers to bf16 or f16, to nearest even; `low` in the lower half. */
RT_INLINE uint32_t rt_pack_bf16(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

RT_INLINE uint32_t rt_pack_f16(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

RT_INLINE float rt_float_of_f16(uint16_t bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

/* 2^x: within 2 units in the last place; 0 for minus infinity. */
RT_INLINE float rt_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
