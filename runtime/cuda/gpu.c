/* gpu.c -- the GPU of this rank: its selection, the memory of the plan, and all that is opened on it. */
#include "gpu.h"

#include "mesh/comm.h"
#include "nccl.h"
#include "sizes.h"
#include "trainer/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- Selection of the GPU ------------------------------------------------------------------- */

static int count_gpus(void)
{
    int count = 0, driver = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    cudaDriverGetVersion(&driver);
    if (status == cudaErrorInsufficientDriver && driver == 0)
        rt_fail("there is no NVIDIA driver on this machine, or it cannot be loaded (libcuda.so.1): a trainer for GPUs "
                "needs one");
    if (status == cudaErrorInsufficientDriver)
        rt_fail("the NVIDIA driver is too old: it knows CUDA %d.%d, and this trainer was built with %d.%d",
                driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        rt_fail("no GPU is visible on this machine%s",
                getenv("CUDA_VISIBLE_DEVICES") ? ": CUDA_VISIBLE_DEVICES hides all or names none" : "");
    if (status != cudaSuccess)
        rt_fail("CUDA cannot start: %s", cudaGetErrorString(status));
    return count;
}

/* A launcher may make all GPUs of a machine visible to all its ranks, or one to each rank: GPUs are identified by UUID,
 * not by number. */
static void check_shared(Rt *rt, cudaUUID_t own, int count)
{
    cudaUUID_t *ids = rt_allocate(rt->ranks, sizeof *ids);
    rt_comm_gather(rt, &own, sizeof own, (char *)ids);
    for (int rank = 0; rank < rt->ranks && !rt->gpu->options.share_gpu; rank++)
        for (int other = 0; other < rank; other++)
            if (memcmp(&ids[rank], &ids[other], sizeof own) == 0)
                rt_fail("ranks %d and %d have the same GPU (%d %s on this machine see %d): start fewer ranks on it, or "
                        "give --share-gpu (slower)",
                        other, rank, rt->local_ranks, rt->local_ranks == 1 ? "rank" : "ranks", count);
    free(ids);
}

/* NCCL rejects several ranks of one machine on one GPU: each then claims to be a separate machine, and they communicate
 * over sockets.  From 2.30 on it also wants to be told that this is meant. */
static void let_ranks_share(const Rt *rt)
{
    char host[60] = "";
    gethostname(host, sizeof host - 1);
    char *own = rt_text("%s.%d", host, rt->rank);
    setenv("NCCL_HOSTID", own, false);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", false);
    free(own);
}

static void choose_gpu(Rt *rt)
{
    struct RtGpu *gpu = rt->gpu;
    struct cudaDeviceProp properties;
    int count = count_gpus();
    gpu->number = rt->local_rank % count;
    snprintf(gpu->name, sizeof gpu->name, "gpu %d", gpu->number);
    rt_gpu_check(rt, cudaSetDevice(gpu->number), "be used");
    rt_gpu_check(rt, cudaGetDeviceProperties(&properties, gpu->number), "be asked");
    snprintf(gpu->name, sizeof gpu->name, "gpu %d (%.40s)", gpu->number, properties.name);
    rt_gpu_find_sheet(gpu, properties.name);
    gpu->major = properties.major;
    gpu->minor = properties.minor;
    snprintf(gpu->model, sizeof gpu->model, "%.40s, sm_%d%d", properties.name, gpu->major, gpu->minor);
    gpu->most_shared = (int64_t)properties.sharedMemPerBlockOptin;
    if (rt->ranks > 1)
        check_shared(rt, properties.uuid, count);
    if (rt->gpu->options.share_gpu)
        let_ranks_share(rt);
    if (gpu->major < 8)
        rt_fail("%s has compute capability %d.%d: mpc's kernels need 8.0 or later", gpu->name, gpu->major, gpu->minor);
    rt_gpu_check(rt, cudaStreamCreateWithFlags(&gpu->compute, cudaStreamNonBlocking), "make a stream");
}

/* --- Memory --------------------------------------------------------------------------------- */

int64_t rt_collectives_workspace_bytes(const Rt *rt) { return rt->gpu->message_bytes; }

/* The workspaces of products and messages. */
static size_t spaces_bytes(const Rt *rt)
{
    return RT_GPU_PRODUCT_BYTES + (size_t)rt_gpu_aligned(rt_collectives_workspace_bytes(rt));
}

/* `own`: what this process has of the plan already. */
static _Noreturn void refuse_memory(const Rt *rt, size_t own)
{
    size_t unused = 0, total = 0;
    rt_gpu_check(rt, cudaMemGetInfo(&unused, &total), "tell its free memory");
    const int64_t messages = rt_collectives_workspace_bytes(rt);
    const char *taken = rt_collectives_taken(rt);
    rt_fail(
        "out of memory: '%s' is planned to need %s, %s for products%s%s, together %s, and %s of %s are free on %s%s%s; "
        "'mpc report' of the model, with its options and --memory=%zu, says what helps",
        rt->program->name, rt_bytes_text((double)rt_arena_bytes(rt)).text,
        rt_bytes_text((double)rt_libraries_workspace_bytes(rt)).text, messages ? ", " : "",
        messages ? rt_text("%s for messages", rt_bytes_text((double)messages).text) : "",
        rt_bytes_text((double)rt_memory_bytes(rt)).text, rt_bytes_text((double)(unused + own)).text,
        rt_bytes_text((double)total).text, rt->gpu->name, taken ? ", without " : "", taken ? taken : "", unused + own);
}

/* First the workspaces, which communicators need, and the arena when these have taken what they need.  What does not
 * fit in any case is refused before. */
static void allocate_spaces(Rt *rt)
{
    struct RtGpu *gpu = rt->gpu;
    void *memory = NULL;
    gpu->message_bytes = rt_gpu_message_bytes(rt);
    if ((size_t)rt_memory_bytes(rt) > rt_gpu_unused(rt) || cudaMalloc(&memory, spaces_bytes(rt)) != cudaSuccess)
        refuse_memory(rt, 0);
    gpu->spaces = gpu->product_space = memory;
    gpu->message_space = gpu->product_space + RT_GPU_PRODUCT_BYTES;
}

void rt_arena_open(Rt *rt)
{
    void *memory = NULL;
    if (rt->gpu->options.nccl_memory)
        memory = rt_nccl_memory_open(rt, rt_arena_bytes(rt));
    else if (cudaMalloc(&memory, (size_t)rt_arena_bytes(rt)) != cudaSuccess)
        memory = NULL;
    if (!memory)
        refuse_memory(rt, spaces_bytes(rt));
    rt->arena = memory;
    rt_zero(rt, 0, rt_arena_bytes(rt));
}

void rt_device_open(Rt *rt, RtDeviceOptions options)
{
    void *numbers;
    rt->gpu = rt_allocate(1, sizeof *rt->gpu);
    rt->gpu->options = options;
    choose_gpu(rt);
    rt_gpu_stay_near(rt);
    rt_gpu_check(rt, cudaHostAlloc(&numbers, RT_GPU_NUMBERS, cudaHostAllocDefault), "pin memory for its results");
    rt->gpu->numbers = numbers;
    rt_gpu_runs_open(rt);
    allocate_spaces(rt);
    rt_gpu_products_open(rt);
    rt_gpu_kernels_open(rt);
    rt_gpu_attentions_open(rt);
}

void rt_libraries_choose(Rt *rt)
{
    rt_gpu_products_choose(rt);
    rt_gpu_eights_choose(rt);
    rt_gpu_attentions_choose(rt);
}

int64_t rt_libraries_workspace_bytes(const Rt *rt)
{
    return RT_GPU_PRODUCT_BYTES + rt->gpu->attention_bytes + rt->gpu->encode_bytes;
}

void rt_device_close(Rt *rt)
{
    rt_gpu_runs_close(rt); /* first its graphs, which use the others */
    rt_gpu_attentions_close(rt);
    rt_gpu_kernels_close(rt);
    rt_gpu_check(rt, cudaFreeHost(rt->gpu->numbers), "free pinned memory");
    rt_gpu_check(rt, cudaFree(rt->gpu->encode_space), "free memory");
    if (rt->gpu->nccl_memory)
        rt_nccl_memory_close(rt);
    else
        rt_gpu_check(rt, cudaFree(rt->arena), "free memory");
    rt_gpu_check(rt, cudaFree(rt->gpu->spaces), "free memory");
    rt_gpu_check(rt, cudaStreamDestroy(rt->gpu->compute), "drop a stream");
    free(rt->gpu);
    rt->gpu = NULL;
}
