/* copies.c -- copies of the arena in pinned memory of the host, on a stream of their own.  A step that is recorded as a
 * graph waits in it, by an event from outside. */
#include "far/far.h"
#include "gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct RtCopies {
    cudaStream_t stream;
    cudaEvent_t begun, done;
    int memories;
};

static void open_stream(Rt *rt)
{
    struct RtCopies *c = rt->copies = rt_allocate(1, sizeof *c);
    rt_gpu_check(rt, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "make a stream");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&c->begun, cudaEventDisableTiming), "make an event");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming), "make an event");
    rt_gpu_check(rt, cudaEventRecord(c->done, c->stream), "record an event");
}

char *rt_copies_allocate(Rt *rt, int64_t bytes)
{
    void *memory;
    if ((double)(rt->program->far_bytes + bytes) > rt->share.memory ||
        cudaHostAlloc(&memory, (size_t)(bytes ? bytes : 1), cudaHostAllocDefault) != cudaSuccess)
        return NULL;
    if (!rt->copies)
        open_stream(rt);
    rt->copies->memories++;
    return memory;
}

void rt_copies_free(Rt *rt, char *memory)
{
    struct RtCopies *c = rt->copies;
    rt_gpu_check(rt, cudaFreeHost(memory), "free pinned memory");
    if (--c->memories > 0)
        return;
    rt_gpu_check(rt, cudaEventDestroy(c->begun), "drop an event");
    rt_gpu_check(rt, cudaEventDestroy(c->done), "drop an event");
    rt_gpu_check(rt, cudaStreamDestroy(c->stream), "drop a stream");
    free(c);
    rt->copies = NULL;
}

int64_t rt_copies_bytes(const Rt *rt) { return 0; } /* they are in memory of the host */

double rt_copies_waited(const Rt *rt) { return NAN; }

/* All of them: which are still needed is known later. */
bool rt_copy_start(Rt *rt, int count, const RtSpan *span, char *to, const atomic_int *needed)
{
    const struct RtCopies *c = rt->copies;
    rt_gpu_check(rt, cudaEventRecord(c->begun, rt->gpu->compute), "record an event");
    rt_gpu_check(rt, cudaStreamWaitEvent(c->stream, c->begun, 0), "wait for an event");
    for (; count > 0; count--, span++)
        if (rt_is_far(rt, span->offset))
            memcpy(to + span->at, rt_far_memory(rt, span->offset), (size_t)span->bytes);
        else
            rt_gpu_check(rt,
                         cudaMemcpyAsync(to + span->at, rt->arena + span->offset, (size_t)span->bytes,
                                         cudaMemcpyDeviceToHost, c->stream),
                         "copy what is saved");
    rt_gpu_check(rt, cudaEventRecord(c->done, c->stream), "record an event");
    return false;
}

void rt_copy_wait(Rt *rt)
{
    if (rt->copies)
        rt_gpu_check(rt, cudaEventSynchronize(rt->copies->done), "copy what is saved");
}

bool rt_copy_hold(Rt *rt, const char *to) { return false; }

bool rt_copy_release(Rt *rt) { return true; }

void rt_state_changes(Rt *rt)
{
    enum cudaStreamCaptureStatus status;
    if (!rt->copies)
        return;
    rt_gpu_check(rt, cudaStreamIsCapturing(rt->gpu->compute, &status), "record a graph");
    rt_gpu_check(rt,
                 cudaStreamWaitEvent(rt->gpu->compute, rt->copies->done,
                                     status == cudaStreamCaptureStatusActive ? cudaEventWaitExternal : 0),
                 "wait for an event");
}

void rt_copy_back(Rt *rt, int count, const RtSpan *span, const char *from)
{
    rt_copy_wait(rt);
    for (; count > 0; count--, span++)
        if (rt_is_far(rt, span->offset))
            memcpy(rt_far_memory(rt, span->offset), from + span->at, (size_t)span->bytes);
        else
            rt_gpu_check(rt,
                         cudaMemcpyAsync(rt->arena + span->offset, from + span->at, (size_t)span->bytes,
                                         cudaMemcpyHostToDevice, rt->gpu->compute),
                         "put back what a step has changed");
    rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "put back what a step has changed");
}
