/* bad_kernels.cpp -- kernels with one fault each, and good ones, for test_emulator.c.
 *
 * x is read and y is written, 128 elements each, by 2 blocks of 64 threads. */
#include "wrap.h"

#include "cuda/kernels.cuh"

#define KERNEL(name)                                                                                                   \
    static void name(const float *x, float *y, int i, int thread);                                                     \
    extern "C" __global__ void name##_kernel(const float *x, float *y)                                                 \
    {                                                                                                                  \
        name(x, y, (int)(blockIdx.x * 64 + threadIdx.x), (int)threadIdx.x);                                            \
    }                                                                                                                  \
    extern "C" void name##_emulated(void **arguments) { emulator_call(name##_kernel, arguments); }                     \
    static void name(const float *x, float *y, int i, int thread)

__shared__ float shared[64];

KERNEL(copies) { y[i] = x[i]; }

KERNEL(sums_in_shared_memory)
{
    shared[thread] = x[i];
    __syncthreads();
    float sum = 0;
    for (int j = 0; j < 64; j++)
        sum += shared[j];
    y[i] = sum;
}

KERNEL(shuffles) { y[i] = rt_warp<RtSum>(x[i]); }

KERNEL(takes_turns)
{
    for (int turn = 0; turn < 3; turn++) {
        shared[thread] = x[i] + (float)turn;
        __syncthreads();
        y[i] = shared[63 - thread];
        __syncthreads();
    }
}

KERNEL(syncs_a_warp)
{
    shared[thread] = x[i];
    __syncwarp();
    y[i] = shared[thread ^ 1];
}

KERNEL(uses_dynamic_memory)
{
    RT_DYNAMIC_SHARED(bytes);
    float *floats = reinterpret_cast<float *>(bytes);
    floats[thread] = x[i];
    __syncthreads();
    y[i] = floats[thread ^ 32];
}

KERNEL(reads_behind_the_end) { y[i] = x[i < 127 ? i : 2 * 128 + i]; }
KERNEL(writes_before_the_start) { y[i == 5 ? -129 : i] = x[i]; }

KERNEL(writes_an_input_of_another)
{
    const float before = x[i];
    if (i == 7)
        const_cast<float *>(x)[8] = 1;
    y[i] = before;
}

KERNEL(reads_what_is_not_written) { y[i] = i == 100 ? y[i] : x[i]; }
KERNEL(reads_unwritten_shared_memory)
{
    if (thread < 63)
        shared[thread] = x[i];
    __syncthreads();
    y[i] = shared[63 - thread];
}

KERNEL(reads_unwritten_dynamic_memory)
{
    RT_DYNAMIC_SHARED(bytes);
    y[i] = reinterpret_cast<float *>(bytes)[thread];
}

KERNEL(lacks_a_barrier)
{
    shared[63 - thread] = x[i];
    __syncwarp();
    y[i] = shared[thread];
}

KERNEL(lacks_a_barrier_before_the_next_turn)
{
    for (int turn = 0; turn < 3; turn++) {
        shared[thread] = x[i] + (float)turn;
        __syncthreads();
        y[i] = shared[63 - thread];
    }
}

KERNEL(lacks_a_warp_barrier)
{
    shared[thread] = x[i];
    y[i] = shared[thread ^ 1] + rt_warp<RtSum>(x[i]);
}

KERNEL(reads_what_another_block_writes)
{
    y[i] = x[i];
    if (i == 127)
        y[i] = y[0];
}

KERNEL(two_blocks_write_one_element) { y[thread] = x[thread]; }
KERNEL(loads_off_the_boundary) { y[i] = i < 100 ? rt_load_pack<4>(x + i)[0] : 0; }

static void stores_a_pack(float *to, int thread, float x)
{
    if (thread % 4 == 0)
        rt_store_pack(to, rt_all<4>(x));
}

KERNEL(stores_packs) { stores_a_pack(y + i, thread, x[i]); }
KERNEL(stores_packs_off_the_boundary) { stores_a_pack(y + (i ? i - 1 : 0), thread, x[i]); }

KERNEL(stores_packs_to_shared_memory)
{
    stores_a_pack(shared + thread, thread, x[i]);
    __syncthreads();
    y[i] = shared[thread];
}

KERNEL(half_of_the_warp_shuffles)
{
    float sum = x[i];
    if (thread % 32 < 16)
        sum = rt_warp<RtSum>(sum);
    y[i] = sum;
}

KERNEL(half_of_the_block_meets)
{
    if (thread < 32)
        __syncthreads();
    else
        rt_warp<RtSum>(x[i]);
    if (thread >= 32 && thread < 40)
        rt_warp<RtSum>(x[i]);
    y[i] = x[i];
}

KERNEL(behind_dynamic_memory)
{
    RT_DYNAMIC_SHARED(bytes);
    float *floats = reinterpret_cast<float *>(bytes);
    floats[thread + 1] = x[i];
    y[i] = x[i];
}

KERNEL(follows_null) { y[i] = i == 3 ? *reinterpret_cast<const float *>((uintptr_t)i * 4) : x[i]; }

#include "sections.h"
