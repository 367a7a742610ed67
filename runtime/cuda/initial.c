/* initial.c -- initial values, computed on the GPU itself: few processor cores would need long, and then a copy.
 *
 * The kernel computes what kernels/initial.h says, as processors do.  Its f64 logarithm and cosine may differ from
 * theirs in the last bit, which the rounding to f32 hides, but for about one element in 10^8. */
#include "far/far.h"
#include "gpu.h"
#include "sizes.h"

#include <stdlib.h>
#include <string.h>

enum { THREADS = 256, EACH = 8, MOST_BLOCKS = 1 << 16 };

static void launch(Rt *rt, cudaKernel_t kernel, const RtInitial *t, const RtInitial *there)
{
    const int64_t blocks = (t->count + THREADS * EACH - 1) / (THREADS * EACH);
    void *arguments[] = { (void *)&there, &rt->arena };
    rt_gpu_check(rt,
                 cudaLaunchKernel((const void *)kernel,
                                  (dim3){ (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), 1, 1 },
                                  (dim3){ THREADS, 1, 1 }, arguments, 0, rt->gpu->compute),
                 "make initial values");
}

/* In the arena: the workspace of products, which nothing uses yet, holds the table. */
static void fill(Rt *rt, int count, const RtInitial *tensors)
{
    RtInitial *table = (RtInitial *)rt->gpu->product_space;
    const int room = (int)(RT_GPU_PRODUCT_BYTES / (int64_t)sizeof *table);
    const cudaKernel_t kernel = rt_gpu_kernel(rt, "rt_initial_values");
    for (int first = 0, some; first < count; first += some) {
        some = count - first < room ? count - first : room;
        rt_gpu_check(rt,
                     cudaMemcpyAsync(table, &tensors[first], (size_t)some * sizeof *table, cudaMemcpyHostToDevice,
                                     rt->gpu->compute),
                     "copy to its memory");
        for (int i = 0; i < some; i++)
            if (tensors[first + i].count)
                launch(rt, kernel, &tensors[first + i], &table[i]);
        rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "make initial values");
    }
}

/* On the host: the GPU makes them in memory that it has for a moment. */
static void fill_far(Rt *rt, const RtInitial *tensor)
{
    const int64_t bytes = rt_initial_bytes(tensor);
    RtInitial there = *tensor;
    void *memory;
    rt_gpu_check(rt, cudaMalloc(&memory, (size_t)bytes), "make initial values");
    there.offset = (int64_t)((uintptr_t)memory - (uintptr_t)rt->arena);
    fill(rt, 1, &there);
    char *copy = rt_gpu_downloaded(rt, memory, bytes);
    memcpy(rt_far_memory(rt, tensor->offset), copy, (size_t)bytes);
    free(copy);
    rt_gpu_check(rt, cudaFree(memory), "free memory");
}

void rt_fill_initial(Rt *rt, int count, const RtInitial *tensors)
{
    RtInitial *near = rt_allocate(count, sizeof *near);
    int filled = 0;
    for (int i = 0; i < count; i++)
        if (rt_is_far(rt, tensors[i].offset))
            fill_far(rt, &tensors[i]);
        else
            near[filled++] = tensors[i];
    fill(rt, filled, near);
    free(near);
}
