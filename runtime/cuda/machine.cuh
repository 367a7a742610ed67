/* machine.cuh -- machine instructions beyond CUDA C++: conversions, tensor cores, asynchronous copies.
 *
 * All assembly is here, each instruction as a function of plain arguments, so that the test that runs kernels on a
 * processor replaces one header (tests/cuda/emulator/machine.cuh).
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

/* Shared memory with a size set by the launch. */
#define RT_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

RT_INLINE float rt_float_of_bits(uint32_t bits) { return __uint_as_float(bits); }
RT_INLINE uint32_t rt_bits_of_float(float x) { return __float_as_uint(x); }

/* Converts two numbers to bf16 or f16, to nearest even; `low` in the lower half. */
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

/* Stores 16 bytes of global memory at once: the compiler takes some plain stores of 16 bytes apart. */
RT_INLINE void rt_store_16(void *to, const uint32_t (&bits)[4])
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3])
                 : "memory");
}

/* --- Tensor cores ---------------------------------------------------------------------------
 *
 * c[16, 8] += a[16, 16] b[16, 8], by a warp.  With g = lane / 4 and t = lane % 4, a thread has
 *   a   rows g and g + 8 of columns 2t and 2t + 1, then of columns 2t + 8 and 2t + 9
 *   b   rows 2t and 2t + 1 of column g, then rows 2t + 8 and 2t + 9
 *   c   columns 2t and 2t + 1 of row g, then of row g + 8
 */
RT_INLINE void rt_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

RT_INLINE void rt_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

RT_INLINE uint32_t rt_shared_address(const void *shared) { return (uint32_t)__cvta_generic_to_shared(shared); }

/* Four matrices of 8 x 8 numbers of 16 bits from shared memory: lane 8i + j supplies the address of row j of matrix i,
 * and gets columns 2t and 2t + 1 of row g of each; transposed: rows 2t and 2t + 1 of column g. */
RT_INLINE void rt_load_matrices(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(rt_shared_address(row))
                 : "memory");
}

RT_INLINE void rt_load_matrices_turned(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(rt_shared_address(row))
                 : "memory");
}

/* --- Asynchronous copies -------------------------------------------------------------------- */

/* Copies 16 bytes to shared memory asynchronously; zeros if not `is_there`.  They are visible to the thread after
 * rt_copy_wait, and to others after a subsequent barrier. */
RT_INLINE void rt_copy_async(void *shared, const void *from, bool is_there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(rt_shared_address(shared)), "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
}

/* Ends a group of copies; waits until at most LATEST groups are pending. */
RT_INLINE void rt_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATEST> RT_INLINE void rt_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(LATEST) : "memory");
}

#endif
