/* machine.cuh -- replaces runtime/cuda/machine.cuh for kernels on a processor: the keywords of CUDA C++, and each
 * machine instruction by its definition. */
#ifndef MPC_CUDA_MACHINE_H
#define MPC_CUDA_MACHINE_H

#include "emulator.h"

/* Of <math.h>, here and in convert.h, the functions of C alone: libstdc++'s overloads take longer to read than most
 * kernels. */
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#include "convert.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#ifdef __OPTIMIZE__
#define __forceinline__ inline __attribute__((always_inline))
#else
#define __forceinline__ inline
#endif
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("rt_shared")))
#define __constant__ __attribute__((section("rt_constant")))
/* With EMULATOR_CALLS functions are not put into their callers, which takes longer to compile than it saves.  Those
 * that are given an element always are: gcc's -fsanitize=thread does not see that an argument that is a structure is
 * read. */
#ifdef EMULATOR_CALLS
#define RT_INLINE static inline
#else
#define RT_INLINE static __forceinline__
#endif
#define RT_DYNAMIC_SHARED(name) unsigned char *const name = (unsigned char *)emulator_dynamic_shared()

#define RT_ON_BOUNDARY(pointer, bytes) emulator_on_boundary(pointer, bytes)

struct EmulatedIndex {
    unsigned x, y, z;
};
#define threadIdx (EmulatedIndex{ emulator_thread_index(), 0, 0 })
#define blockIdx (EmulatedIndex{ emulator_block_index(), 0, 0 })
#define blockDim (EmulatedIndex{ emulator_block_size(), 1, 1 })
#define gridDim (EmulatedIndex{ emulator_grid_size(), 1, 1 })

RT_INLINE int atomicExch(int *at, int value) { return emulator_exchange(at, value); }
RT_INLINE void __syncthreads() { emulator_barrier(); }
RT_INLINE int __syncthreads_or(int predicate) { return emulator_barrier_or(predicate); }
RT_INLINE int __popc(uint32_t bits) { return __builtin_popcount(bits); }
RT_INLINE void __syncwarp(uint32_t mask = 0xFFFFFFFFu) { emulator_barrier_warp(mask); }
RT_INLINE uint32_t __ballot_sync(uint32_t mask, int predicate) { return emulator_ballot(mask, predicate); }
RT_INLINE int __any_sync(uint32_t mask, int predicate) { return emulator_ballot(mask, predicate) != 0; }
RT_INLINE int __all_sync(uint32_t mask, int predicate) { return emulator_ballot(mask, predicate) == mask; }

template <typename T> RT_INLINE T __shfl_sync(uint32_t mask, T value, int source)
{
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = emulator_shuffle(mask, bits, source);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T> RT_INLINE T __shfl_xor_sync(uint32_t mask, T value, int with)
{
    return __shfl_sync(mask, value, (int)(emulator_thread_index() % 32) ^ with);
}

RT_INLINE uint32_t rt_pack_bf16(float low, float high)
{
    return (uint32_t)rt_bf16_of_float(high) << 16 | rt_bf16_of_float(low);
}

RT_INLINE uint32_t rt_pack_f16(float low, float high)
{
    return (uint32_t)rt_f16_of_float(high) << 16 | rt_f16_of_float(low);
}

RT_INLINE float rt_exp2(float x) { return exp2f(x); }

RT_INLINE void rt_store_16(void *to, const uint32_t (&bits)[4]) { emulator_store_global(to, bits, sizeof bits); }

RT_INLINE void rt_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulator_mma(c, a, b0, b1, 1);
}

RT_INLINE void rt_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulator_mma(c, a, b0, b1, 0);
}

RT_INLINE void rt_load_matrices(uint32_t (&to)[4], const void *row) { emulator_load_matrices(to, row, 0); }
RT_INLINE void rt_load_matrices_turned(uint32_t (&to)[4], const void *row) { emulator_load_matrices(to, row, 1); }
RT_INLINE void rt_copy_async(void *shared, const void *from, bool is_there)
{
    emulator_copy_async(shared, from, is_there);
}
RT_INLINE void rt_copy_commit() { emulator_copy_commit(); }
template <int LATEST> RT_INLINE void rt_copy_wait() { emulator_copy_wait(LATEST); }

#endif
