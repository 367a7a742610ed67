/* bad_hopper.cpp -- kernels of bad_hopper.def for test_bad_hopper.c: a kernel by Hopper's instructions, as it should be, and
 * with one fault each.
 *
 * y[64, 64] = a b^T of two boxes of bf16 [64, 64], which are rows 0 ... 63 and 64 ... 127 of x, by one block: a group of
 * four warps multiplies, one does nothing, and a thread of the third copies. */
#include "wrap.h"

#include "cuda/kernels.cuh"

enum Kind {
#define KERNEL(name, is_good) name,
#include "bad_hopper.def"
#undef KERNEL
};

enum { ROWS = 64, GROUP = 128, BOX = ROWS * 64, BOX_BYTES = 2 * BOX, EIGHT_ROWS = 1024, MEETING = 1 };

struct Shared {
    rt_bf16 *a, *b;
    uint64_t *there, *used;
};

template <Kind KIND> RT_INLINE void copy(const RtTensorMap &x, const Shared at)
{
    rt_mbarrier_arrive_expecting(at.there, KIND == expects_one_box_of_two       ? BOX_BYTES
                                           : KIND == expects_three_boxes_of_two ? 3 * BOX_BYTES
                                                                                : 2 * BOX_BYTES);
    rt_copy_box(at.a + (KIND == copies_to_the_middle_of_a_row ? 8 : 0), x, at.there, 0, 0, 0, 0);
    rt_copy_box(at.b, x, at.there, 0, ROWS, 0, 0);
    if (KIND == copies_over_what_was_read || KIND == copies_over_what_is_read) {
        rt_mbarrier_wait(at.used, 0);
        rt_mbarrier_arrive_expecting(at.there, BOX_BYTES);
        rt_copy_box(at.a, x, at.there, 0, ROWS, 0, 0);
    }
}

/* The group stores the elements of a once more. */
template <Kind KIND> RT_INLINE void store(const Shared at)
{
    for (int i = threadIdx.x; i < BOX; i += GROUP)
        at.a[i] = rt_store_bf16(rt_load_bf16(at.a[i]) + 0.0f);
    if (KIND != stores_without_a_fence)
        rt_fence_async();
    if (KIND != stores_without_meeting)
        rt_barrier_wait(MEETING, GROUP);
}

template <Kind KIND> RT_INLINE void multiply(float (&c)[8][4], const Shared at)
{
    if (KIND != begins_products_without_a_fence)
        rt_products_fence();
    for (int k = 0; k < 4; k++) {
        uint64_t a = rt_matrix(at.a + 16 * k, 0, EIGHT_ROWS);
        const uint64_t b = rt_matrix(at.b + 16 * k, 0, KIND == takes_other_rows ? 2 * EIGHT_ROWS / 4 : EIGHT_ROWS);
        a += KIND == multiplies_off_the_boundary ? 128 >> 4 : 0;
        a &= KIND == multiplies_without_a_swizzle ? ~((uint64_t)3 << 62) : ~(uint64_t)0;
        rt_product_begin<64, true>(c, a, b, k > 0);
        if (k == 2 && KIND == waits_for_the_last_group_only)
            rt_products_commit();
    }
    rt_products_commit();
}

template <Kind KIND> RT_INLINE void use(float *y, const Shared at)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    float c[8][4], early = 0;
    if (KIND != does_not_wait_for_boxes)
        rt_mbarrier_wait(at.there, KIND == waits_for_the_phase_before);
    if (KIND == stores_with_a_fence || KIND == stores_without_a_fence || KIND == stores_without_meeting)
        store<KIND>(at);
    if (KIND != half_of_the_group_multiplies || threadIdx.x < GROUP / 2)
        multiply<KIND>(c, at);
    if (KIND == copies_over_what_is_read && threadIdx.x == 0)
        rt_mbarrier_arrive(at.used);
    if (KIND == reads_accumulators_before_waiting)
        early = c[0][0];
    if (KIND == changes_accumulators_before_waiting)
        c[0][0] = 1;
    if (KIND == waits_for_the_last_group_only)
        rt_products_wait<1>();
    else if (KIND != does_not_wait_for_products)
        rt_products_wait<0>();
    if (KIND == copies_over_what_was_read) {
        rt_barrier_wait(MEETING, GROUP);
        if (threadIdx.x == 0)
            rt_mbarrier_arrive(at.used);
        rt_mbarrier_wait(at.there, 1);
    }
    if (KIND == reads_accumulators_before_waiting)
        c[0][0] = early;
    for (int i = 0; i < 8 * 4; i++)
        y[(row + i / 2 % 2 * 8) * ROWS + i / 4 * 8 + lane % 4 * 2 + i % 2] = c[i / 4][i % 4];
}

template <Kind KIND> RT_INLINE void meet()
{
    if (KIND == meets_with_another_count)
        rt_barrier_wait(MEETING, threadIdx.x < 32 ? 2 * GROUP : GROUP);
    if (KIND == waits_for_nobody && threadIdx.x < 32)
        rt_barrier_wait(MEETING, GROUP);
    for (int i = 0; i < 2 && KIND == arrives_twice; i++)
        rt_barrier_arrive(MEETING, 2 * GROUP);
}

template <Kind KIND> RT_INLINE void kernel(const RtTensorMap &x, float *y)
{
    RT_DYNAMIC_SHARED(memory);
    const uint32_t beyond = rt_shared_address(memory) % 1024;
    rt_bf16 *a = reinterpret_cast<rt_bf16 *>(memory + (beyond ? 1024 - beyond : 0));
    uint64_t *barriers = reinterpret_cast<uint64_t *>(a + 2 * BOX);
    const Shared at = { a, a + BOX, barriers, barriers + 1 };
    const int group = threadIdx.x / GROUP;
    if (threadIdx.x == 0) {
        rt_mbarrier_init(at.there, 1);
        rt_mbarrier_init(at.used, 1);
        if (KIND != makes_barriers_without_a_fence)
            rt_fence_async();
    }
    if (KIND != makes_barriers_without_meeting)
        __syncthreads();
    if (KIND == asks_for_too_many_registers && group == 1)
        rt_more_registers<256>();
    if (group == 0) {
        rt_more_registers<240>();
        meet<KIND>();
        use<KIND>(y, at);
    }
    if (group == 2 && (KIND != half_of_the_group_gives_registers || threadIdx.x % GROUP < GROUP / 2))
        rt_fewer_registers<40>();
    if (threadIdx.x == 2 * GROUP)
        copy<KIND>(x, at);
}

#define KERNEL(name, is_good)                                                                                          \
    extern "C" __global__ void name##_kernel(RT_TENSOR_MAP x, float *y) { kernel<name>(x, y); }  \
    extern "C" void name##_emulated(void **arguments) { emulator_call(name##_kernel, arguments); }
#include "bad_hopper.def"
#undef KERNEL

#include "sections.h"
