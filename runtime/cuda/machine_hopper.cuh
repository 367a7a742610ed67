/* machine_hopper.cuh -- machine instructions that only Hopper has (sm_90a): products of warpgroups, copies of tensors'
 * boxes, barriers in memory, exchange of registers between warps.
 *
 * Functions of plain arguments, as in machine.cuh: the test that runs kernels on a processor replaces this header, too
 * (tests/cuda/emulator/machine_hopper.cuh).
 */
#ifndef MPC_CUDA_MACHINE_HOPPER_H
#define MPC_CUDA_MACHINE_HOPPER_H

#include <machine.cuh>

/* Kernels that need these are in the text, under this condition. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define RT_HOPPER
#endif

/* A tensor in global memory and the shape of boxes that are copied from it, made by the host: CUtensorMap.  Where it
 * lies matters to the machine: a kernel's parameter is RT_TENSOR_MAP. */
struct alignas(64) RtTensorMap {
    uint64_t bits[16];
};
#define RT_TENSOR_MAP const __grid_constant__ RtTensorMap

/* The number, of which the compiler then knows nothing. */
RT_INLINE int rt_unknown(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* --- Barriers in shared memory ----------------------------------------------------------------
 *
 * A phase ends when `arrivals` threads have arrived and as many bytes as were expected in it have come; the next one
 * begins at once.  Waiting is for the end of the last phase of a parity: phases are 0, 1, 0, ... */
RT_INLINE void rt_mbarrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(rt_shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

RT_INLINE void rt_mbarrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(rt_shared_address(barrier)) : "memory");
}

/* Arrives, and expects bytes of boxes in this phase. */
RT_INLINE void rt_mbarrier_arrive_expecting(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(rt_shared_address(barrier)), "r"(bytes)
                 : "memory");
}

RT_INLINE void rt_mbarrier_wait(uint64_t *barrier, int parity)
{
    uint32_t is_over;
    do
        asm volatile("{\n"
                     ".reg .pred over;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, over;\n"
                     "}"
                     : "=r"(is_over)
                     : "r"(rt_shared_address(barrier)), "r"(parity)
                     : "memory");
    while (!is_over);
}

/* --- Barriers with numbers --------------------------------------------------------------------
 *
 * From 1 on (0 is that of __syncthreads), of `threads` threads in whole warps, which wait or only arrive. */
RT_INLINE void rt_barrier_wait(int number, int threads)
{
    asm volatile("barrier.cta.sync.aligned %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

RT_INLINE void rt_barrier_arrive(int number, int threads)
{
    asm volatile("barrier.cta.arrive.aligned %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

/* --- Copies of boxes --------------------------------------------------------------------------- */

/* Makes this thread's stores to shared memory, and barriers that it has made there, visible to copies of boxes and to
 * products of warpgroups (the asynchronous proxy) that follow a barrier. */
RT_INLINE void rt_fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Begins to copy the box at these coordinates, the innermost first, to shared memory; its bytes come to the barrier,
 * all of them, also where the box is beyond the tensor's end: there it is zeros.  By one thread. */
RT_INLINE void rt_copy_box(void *shared, const RtTensorMap &map, uint64_t *barrier, int x0, int x1, int x2, int x3)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];"
        :
        : "r"(rt_shared_address(shared)), "l"(&map), "r"(rt_shared_address(barrier)), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
        : "memory");
}

/* --- Registers --------------------------------------------------------------------------------- */

/* All warps of a warpgroup give registers of each thread back, or wait until they get more: multiples of 8. */
template <int COUNT> RT_INLINE void rt_fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(COUNT));
}
template <int COUNT> RT_INLINE void rt_more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(COUNT));
}

/* --- Products of warpgroups -------------------------------------------------------------------
 *
 * c[64, N] += a[64, 16] b[16, N] by four warps, which begin it and go on.  Each has 16 rows of a and c, as fragments of
 * 16 x 8 (or 16) elements that are those of rt_mma_bf16.  Operands in shared memory are matrices in 128-byte rows, of
 * which groups of eight are aligned to 1024 bytes, with the 16-byte pieces of row r at places exchanged by r % 8:
 * piece p is at p ^ r % 8. */

/* Before the first product, and before those that follow a change of registers that they use. */
RT_INLINE void rt_products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/* Ends a group of products; waits until at most LATEST groups are pending. */
RT_INLINE void rt_products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LATEST> RT_INLINE void rt_products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(LATEST) : "memory");
}

/* Keeps what is computed of or for registers of products on this side of a fence or wait: the compiler does not know
 * that these concern them. */
template <int N> RT_INLINE void rt_products_pin(float (&c)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++)
        asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}
template <int N> RT_INLINE void rt_products_pin(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++)
        asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

/* The instruction: its names of c's registers, its numbers of the other operands. */
#define RT_NAMES_32                                                                                                    \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define RT_NAMES_64                                                                                                    \
    RT_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "    \
                "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RT_FOUR(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define RT_FLOATS_32(i)                                                                                                \
    RT_FOUR(i), RT_FOUR(i + 1), RT_FOUR(i + 2), RT_FOUR(i + 3), RT_FOUR(i + 4), RT_FOUR(i + 5), RT_FOUR(i + 6),        \
        RT_FOUR(i + 7)
#define RT_FLOATS_64(i) RT_FLOATS_32(i), RT_FLOATS_32(i + 8)
#define RT_PRODUCT(columns, type, names, a, b, adds, turned, floats, ...)                                              \
    asm volatile("{\n"                                                                                                 \
                 ".reg .pred adds;\n"                                                                                  \
                 "setp.ne.b32 adds, " adds ", 0;\n"                                                                    \
                 "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" names "}, " a ", " b        \
                 ", adds, 1, 1, " turned ";\n"                                                                         \
                 "}"                                                                                                   \
                 : floats                                                                                              \
                 : __VA_ARGS__)

/* Both operands by rows along the terms, in shared memory: c[64, N] (+)= a b^T. */
template <int COLUMNS, bool IS_BF16, int N>
RT_INLINE void rt_product_begin(float (&c)[N][4], uint64_t a, uint64_t b, bool adds)
{
    static_assert(COLUMNS == 8 * N && (COLUMNS == 64 || COLUMNS == 128), "");
    if constexpr (COLUMNS == 64 && IS_BF16)
        RT_PRODUCT("64", "bf16", RT_NAMES_32, "%32", "%33", "%34", "0, 0", RT_FLOATS_32(0), "l"(a), "l"(b),
                   "r"((int)adds));
    else if constexpr (COLUMNS == 64)
        RT_PRODUCT("64", "f16", RT_NAMES_32, "%32", "%33", "%34", "0, 0", RT_FLOATS_32(0), "l"(a), "l"(b),
                   "r"((int)adds));
    else if constexpr (IS_BF16)
        RT_PRODUCT("128", "bf16", RT_NAMES_64, "%64", "%65", "%66", "0, 0", RT_FLOATS_64(0), "l"(a), "l"(b),
                   "r"((int)adds));
    else
        RT_PRODUCT("128", "f16", RT_NAMES_64, "%64", "%65", "%66", "0, 0", RT_FLOATS_64(0), "l"(a), "l"(b),
                   "r"((int)adds));
}

/* The left operand in registers, the right one by rows of COLUMNS elements, one for each term: columns 8 * AT ... of c
 * += a b. */
template <int COLUMNS, bool IS_BF16, int AT, int N>
RT_INLINE void rt_product_turned_begin(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b)
{
#define RT_LEFT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1)
    static_assert(COLUMNS == 64 || COLUMNS == 128, "");
    if constexpr (COLUMNS == 64 && IS_BF16)
        RT_PRODUCT("64", "bf16", RT_NAMES_32, "{%32, %33, %34, %35}", "%36", "%37", "1", RT_FLOATS_32(AT), RT_LEFT);
    else if constexpr (COLUMNS == 64)
        RT_PRODUCT("64", "f16", RT_NAMES_32, "{%32, %33, %34, %35}", "%36", "%37", "1", RT_FLOATS_32(AT), RT_LEFT);
    else if constexpr (IS_BF16)
        RT_PRODUCT("128", "bf16", RT_NAMES_64, "{%64, %65, %66, %67}", "%68", "%69", "1", RT_FLOATS_64(AT), RT_LEFT);
    else
        RT_PRODUCT("128", "f16", RT_NAMES_64, "{%64, %65, %66, %67}", "%68", "%69", "1", RT_FLOATS_64(AT), RT_LEFT);
#undef RT_LEFT
}

#endif
