/* fetch.c -- moves tensors between the GPU and pinned memory of the host.
 *
 * Fetches that are started have a stream of their own; events order it and the compute stream, as those of collectives
 * (nccl.c).  What goes to the host is queued on the compute stream: later fetches, which begin behind it, find it
 * there.
 */
#include "far/far.h"
#include "gpu.h"

#include <stdlib.h>

typedef struct {
    cudaEvent_t done;
    int64_t call; /* number of its last start */
} Fetch;

struct RtFetches {
    cudaStream_t stream;
    cudaEvent_t begun, end;
    Fetch *fetch;
    int64_t calls, joined; /* on the stream; for the first `joined` of them the compute stream has waited */
};

static void *on_host(const Rt *rt, const void *address) { return rt_far_memory(rt, (const char *)address - rt->arena); }

void rt_far_open(Rt *rt, const char *folder)
{
    const RtProgram *program = rt->program;
    void *memory;
    if (!program->far_bytes)
        return;
    struct RtFar *far = rt->far = rt_allocate(1, sizeof *far);
    if ((double)program->far_bytes > rt->share.memory ||
        cudaHostAlloc(&memory, (size_t)program->far_bytes, cudaHostAllocDefault) != cudaSuccess)
        rt_fail("out of memory: '%s' offloads %s to the host for each rank here, and %s are available", program->name,
                rt_bytes_text((double)program->far_bytes).text, rt_bytes_text(rt->share.memory).text);
    far->memory = memory;
    struct RtFetches *f = far->fetches = rt_allocate(1, sizeof *f);
    f->fetch = rt_allocate(program->nfetches + 1, sizeof *f->fetch);
    rt_gpu_check(rt, cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking), "make a stream");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&f->begun, cudaEventDisableTiming), "make an event");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&f->end, cudaEventDisableTiming), "make an event");
    for (int i = 0; i < program->nfetches; i++)
        rt_gpu_check(rt, cudaEventCreateWithFlags(&f->fetch[i].done, cudaEventDisableTiming), "make an event");
}

void rt_far_close(Rt *rt)
{
    struct RtFetches *f = rt->far ? rt->far->fetches : NULL;
    if (!f)
        return;
    for (int i = 0; i < rt->program->nfetches; i++)
        rt_gpu_check(rt, cudaEventDestroy(f->fetch[i].done), "drop an event");
    rt_gpu_check(rt, cudaEventDestroy(f->begun), "drop an event");
    rt_gpu_check(rt, cudaEventDestroy(f->end), "drop an event");
    rt_gpu_check(rt, cudaStreamDestroy(f->stream), "drop a stream");
    rt_gpu_check(rt, cudaFreeHost(rt->far->memory), "free pinned memory");
    free(f->fetch);
    free(f);
    free(rt->far);
    rt->far = NULL;
}

int64_t rt_far_workspace_bytes(const Rt *rt) { return 0; }

/* --- For generated code ------------------------------------------------------------------------------------ */

static void copy(Rt *rt, void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    rt_gpu_check(rt, cudaMemcpyAsync(to, from, (size_t)bytes, kind, stream), "copy from and to the host");
    rt->far->moved += bytes;
}

void rt_fetch_start(Rt *rt, int id, void *to, const void *from, int64_t bytes)
{
    struct RtFetches *f = rt->far->fetches;
    rt_gpu_check(rt, cudaEventRecord(f->begun, rt->gpu->compute), "record an event");
    rt_gpu_check(rt, cudaStreamWaitEvent(f->stream, f->begun, 0), "wait for an event");
    copy(rt, to, on_host(rt, from), bytes, cudaMemcpyHostToDevice, f->stream);
    rt_gpu_check(rt, cudaEventRecord(f->fetch[id].done, f->stream), "record an event");
    f->fetch[id].call = ++f->calls;
}

/* What has been joined was perhaps started beside the graph that is being recorded. */
void rt_fetch_wait(Rt *rt, int id)
{
    const struct RtFetches *f = rt->far->fetches;
    if (f->fetch[id].call > f->joined)
        rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, f->fetch[id].done, 0), "wait for an event");
}

void rt_fetch(Rt *rt, void *to, const void *from, int64_t bytes)
{
    copy(rt, to, on_host(rt, from), bytes, cudaMemcpyHostToDevice, rt->gpu->compute);
}

void rt_offload(Rt *rt, void *to, const void *from, int64_t bytes)
{
    copy(rt, on_host(rt, to), from, bytes, cudaMemcpyDeviceToHost, rt->gpu->compute);
}

void rt_gpu_fetches_join(Rt *rt)
{
    struct RtFetches *f = rt->far ? rt->far->fetches : NULL;
    if (!f || f->joined == f->calls)
        return;
    rt_gpu_check(rt, cudaEventRecord(f->end, f->stream), "record an event");
    rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, f->end, 0), "wait for an event");
    f->joined = f->calls;
}
