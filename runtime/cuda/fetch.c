/* fetch.c -- moves tensors between the GPU and pinned memory of the host.
 *
 * What is started has a stream of its own for each direction; events order it and the compute stream, as those of
 * collectives (nccl.c).  What nobody waits for is queued on the compute stream: later fetches, which begin behind it,
 * find it there.
 */
#include "far/far.h"
#include "gpu.h"

#include <stdlib.h>

typedef struct {
    cudaStream_t stream;
    int64_t calls, joined; /* for the first `joined` of them the compute stream has waited */
} Direction;

typedef struct {
    cudaEvent_t done;
    const Direction *direction;
    int64_t call; /* number of its last start */
} Transfer;

enum { FROM_HOST, TO_HOST, DIRECTIONS };

struct RtTransfers {
    Direction direction[DIRECTIONS];
    cudaEvent_t begun, end;
    Transfer *transfer;
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
        rt_fail("out of memory: '%s' offloads %s to the host for each rank here, and %s are available; "
                "'keep BYTES' leaves some of it on the GPU",
                program->name, rt_bytes_text((double)program->far_bytes).text, rt_bytes_text(rt->share.memory).text);
    far->memory = memory;
    struct RtTransfers *f = far->transfers = rt_allocate(1, sizeof *f);
    f->transfer = rt_allocate(program->ntransfers + 1, sizeof *f->transfer);
    for (int i = 0; i < DIRECTIONS; i++)
        rt_gpu_check(rt, cudaStreamCreateWithFlags(&f->direction[i].stream, cudaStreamNonBlocking), "make a stream");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&f->begun, cudaEventDisableTiming), "make an event");
    rt_gpu_check(rt, cudaEventCreateWithFlags(&f->end, cudaEventDisableTiming), "make an event");
    for (int i = 0; i < program->ntransfers; i++)
        rt_gpu_check(rt, cudaEventCreateWithFlags(&f->transfer[i].done, cudaEventDisableTiming), "make an event");
}

void rt_far_close(Rt *rt)
{
    struct RtTransfers *f = rt->far ? rt->far->transfers : NULL;
    if (!f)
        return;
    for (int i = 0; i < rt->program->ntransfers; i++)
        rt_gpu_check(rt, cudaEventDestroy(f->transfer[i].done), "drop an event");
    rt_gpu_check(rt, cudaEventDestroy(f->begun), "drop an event");
    rt_gpu_check(rt, cudaEventDestroy(f->end), "drop an event");
    for (int i = 0; i < DIRECTIONS; i++)
        rt_gpu_check(rt, cudaStreamDestroy(f->direction[i].stream), "drop a stream");
    rt_gpu_check(rt, cudaFreeHost(rt->far->memory), "free pinned memory");
    free(f->transfer);
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

static void start(Rt *rt, int id, void *to, const void *from, int64_t bytes, int direction)
{
    static const enum cudaMemcpyKind kind[] = { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
    struct RtTransfers *f = rt->far->transfers;
    Transfer *transfer = &f->transfer[id];
    Direction *d = &f->direction[direction];
    rt_gpu_check(rt, cudaEventRecord(f->begun, rt->gpu->compute), "record an event");
    rt_gpu_check(rt, cudaStreamWaitEvent(d->stream, f->begun, 0), "wait for an event");
    copy(rt, to, from, bytes, kind[direction], d->stream);
    rt_gpu_check(rt, cudaEventRecord(transfer->done, d->stream), "record an event");
    transfer->direction = d;
    transfer->call = ++d->calls;
}

void rt_fetch_start(Rt *rt, int id, void *to, const void *from, int64_t bytes)
{
    start(rt, id, to, on_host(rt, from), bytes, FROM_HOST);
}

void rt_offload_start(Rt *rt, int id, void *to, const void *from, int64_t bytes)
{
    start(rt, id, on_host(rt, to), from, bytes, TO_HOST);
}

/* What has been joined was perhaps started beside the graph that is being recorded. */
void rt_transfer_wait(Rt *rt, int id)
{
    const Transfer *transfer = &rt->far->transfers->transfer[id];
    if (transfer->call > transfer->direction->joined)
        rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, transfer->done, 0), "wait for an event");
}

void rt_fetch(Rt *rt, void *to, const void *from, int64_t bytes)
{
    copy(rt, to, on_host(rt, from), bytes, cudaMemcpyHostToDevice, rt->gpu->compute);
}

void rt_offload(Rt *rt, void *to, const void *from, int64_t bytes)
{
    copy(rt, on_host(rt, to), from, bytes, cudaMemcpyDeviceToHost, rt->gpu->compute);
}

void rt_gpu_transfers_join(Rt *rt)
{
    struct RtTransfers *f = rt->far ? rt->far->transfers : NULL;
    for (Direction *d = f ? f->direction : NULL; d && d < f->direction + DIRECTIONS; d++) {
        if (d->joined == d->calls)
            continue;
        rt_gpu_check(rt, cudaEventRecord(f->end, d->stream), "record an event");
        rt_gpu_check(rt, cudaStreamWaitEvent(rt->gpu->compute, f->end, 0), "wait for an event");
        d->joined = d->calls;
    }
}
