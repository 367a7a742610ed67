/* machine_hopper.cuh -- replaces runtime/cuda/machine_hopper.cuh for kernels on a processor. */
#ifndef MPC_CUDA_MACHINE_HOPPER_H
#define MPC_CUDA_MACHINE_HOPPER_H

#include <machine.cuh>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define RT_HOPPER
#endif

struct alignas(64) RtTensorMap {
    uint64_t bits[16];
};
#define RT_TENSOR_MAP const RtTensorMap

RT_INLINE int rt_unknown(int x) { return x; }
RT_INLINE uint32_t rt_shared_address(const void *shared) { return emulator_shared_address(shared); }

RT_INLINE void rt_mbarrier_init(uint64_t *barrier, int arrivals) { emulator_mbarrier_init(barrier, arrivals); }
RT_INLINE void rt_mbarrier_arrive(uint64_t *barrier) { emulator_mbarrier_arrive(barrier, 0); }
RT_INLINE void rt_mbarrier_arrive_expecting(uint64_t *barrier, int bytes) { emulator_mbarrier_arrive(barrier, bytes); }
RT_INLINE void rt_mbarrier_wait(uint64_t *barrier, int parity) { emulator_mbarrier_wait(barrier, parity); }

RT_INLINE void rt_barrier_wait(int number, int threads) { emulator_barrier_number(number, threads, 1); }
RT_INLINE void rt_barrier_arrive(int number, int threads) { emulator_barrier_number(number, threads, 0); }

RT_INLINE void rt_fence_async() { emulator_fence_async(); }
RT_INLINE void rt_copy_box(void *shared, const RtTensorMap &map, uint64_t *barrier, int x0, int x1, int x2, int x3)
{
    const int at[] = { x0, x1, x2, x3 };
    emulator_copy_box(shared, &map, barrier, at);
}

template <int COUNT> RT_INLINE void rt_fewer_registers() { emulator_set_registers(COUNT, 0); }
template <int COUNT> RT_INLINE void rt_more_registers() { emulator_set_registers(COUNT, 1); }

RT_INLINE void rt_products_fence() { emulator_group_fence(); }
RT_INLINE void rt_products_commit() { emulator_group_commit(); }
template <int LATEST> RT_INLINE void rt_products_wait() { emulator_group_wait(LATEST); }
template <int N> RT_INLINE void rt_products_pin(float (&)[N][4]) {}
template <int N> RT_INLINE void rt_products_pin(uint32_t (&)[N][4]) {}

template <int COLUMNS, bool IS_BF16, int N>
RT_INLINE void rt_product_begin(float (&c)[N][4], uint64_t a, uint64_t b, bool adds)
{
    static_assert(COLUMNS == 8 * N && (COLUMNS == 64 || COLUMNS == 128), "");
    emulator_group_product(c[0], COLUMNS, IS_BF16, nullptr, a, b, 0, adds);
}

template <int COLUMNS, bool IS_BF16, int AT, int N>
RT_INLINE void rt_product_turned_begin(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b)
{
    static_assert(AT + COLUMNS / 8 <= N && (COLUMNS == 64 || COLUMNS == 128), "");
    emulator_group_product(c[AT], COLUMNS, IS_BF16, a, 0, b, 1, 1);
}

#endif
