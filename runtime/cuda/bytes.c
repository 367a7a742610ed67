/* bytes.c -- bytes of the GPU's memory: how many are free; zeros; copies to it, from it and in it. */
#include "gpu.h"

#include "far/far.h"

#include <stdlib.h>
#include <string.h>

void rt_gpu_check_status(const Rt *rt, int status, const char *what)
{
    if (status != cudaSuccess)
        rt_fail("%s cannot %s: %s", rt->gpu->name, what, cudaGetErrorString((cudaError_t)status));
}

size_t rt_gpu_unused(const Rt *rt)
{
    size_t unused = 0, total = 0;
    rt_gpu_check(rt, cudaMemGetInfo(&unused, &total), "tell its free memory");
    return unused;
}

int64_t rt_gpu_free_memory(Rt *rt)
{
    const int64_t reserve = (int64_t)1 << 30; /* bytes, for graphs and the driver */
    const int64_t own = ((int64_t)rt_gpu_unused(rt) - reserve) / (rt->gpu->options.share_gpu ? rt->local_ranks : 1);
    return (int64_t)-rt_comm_max(rt, -(double)own);
}

void rt_zero(Rt *rt, int64_t offset, int64_t bytes)
{
    if (rt_is_far(rt, offset)) {
        memset(rt_far_memory(rt, offset), 0, (size_t)bytes);
        return;
    }
    rt_gpu_check(rt, cudaMemsetAsync(rt->arena + offset, 0, (size_t)bytes, rt->gpu->compute), "zero memory");
}

void rt_zero_bytes(Rt *rt, void *at, int64_t bytes)
{
    rt_gpu_check(rt, cudaMemsetAsync(at, 0, (size_t)bytes, rt->gpu->compute), "zero memory");
}

void rt_gpu_upload(const Rt *rt, void *to, const void *from, int64_t bytes)
{
    rt_gpu_check(rt, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyHostToDevice, rt->gpu->compute),
                 "copy to its memory");
    rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "copy to its memory");
}

static void download(const Rt *rt, void *to, const void *from, int64_t bytes)
{
    rt_gpu_check(rt, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToHost, rt->gpu->compute),
                 "copy from its memory");
    rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "copy from its memory");
}

void *rt_gpu_downloaded(const Rt *rt, const void *from, int64_t bytes)
{
    void *copy = rt_allocate(bytes, 1);
    download(rt, copy, from, bytes);
    return copy;
}

void rt_download(const Rt *rt, void *to, int64_t offset, int64_t bytes)
{
    void *landing = bytes <= RT_GPU_NUMBERS ? rt->gpu->numbers : to;
    download(rt, landing, rt->arena + offset, bytes);
    if (landing != to)
        memcpy(to, landing, (size_t)bytes);
}

char *rt_window_open(const Rt *rt, int64_t offset, int64_t bytes)
{
    if (rt_is_far(rt, offset)) {
        rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "copy to the host");
        return rt_far_memory(rt, offset);
    }
    char *window = rt_allocate(bytes, 1);
    rt_download(rt, window, offset, bytes);
    return window;
}

void rt_window_close(const Rt *rt, char *window, int64_t offset, int64_t bytes, bool is_changed)
{
    if (rt_is_far(rt, offset))
        return;
    if (is_changed)
        rt_gpu_upload(rt, rt->arena + offset, window, bytes);
    free(window);
}

void rt_copy_bytes(Rt *rt, void *to, const void *from, int64_t bytes)
{
    rt_gpu_check(rt, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, rt->gpu->compute),
                 "copy in its memory");
}

void rt_copy_rows(Rt *rt, void *to, int64_t to_row, const void *from, int64_t from_row, int64_t row, int64_t rows)
{
    rt_gpu_check(rt,
                 cudaMemcpy2DAsync(to, (size_t)to_row, from, (size_t)from_row, (size_t)row, (size_t)rows,
                                   cudaMemcpyDeviceToDevice, rt->gpu->compute),
                 "copy rows in its memory");
}
