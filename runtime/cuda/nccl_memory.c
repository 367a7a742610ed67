/* nccl_memory.c -- the arena as memory of NCCL's, with --nccl-memory.
 *
 * NCCL copies what it sends and receives through buffers of its own, unless it has allocated and registered the memory:
 * then it reads and writes tensors where they are, and switches of NVLink can add them up.  The arena is registered
 * with the communicators whose ranks have all tensors at the same offsets, as NCCL requires: not with those over the
 * stages of a pipeline, which leave out different tensors.  Messages that are packed stay in the workspace, which is
 * not registered. */
#include "nccl.h"

#include "sizes.h"

#include <stdlib.h>

#define MEMORY_FUNCTIONS(F)                                                                                            \
    F(ncclMemAlloc)                                                                                                    \
    F(ncclMemFree)                                                                                                     \
    F(ncclCommRegister)                                                                                                \
    F(ncclCommDeregister)

struct RtNcclMemory {
    union {
        struct {
            MEMORY_FUNCTIONS(RT_POINTER)
        };
        void *at[4];
    };
    void **handle; /* by channel; NULL: the arena is not registered with it */
};

/* Is each tensor at the same place on all ranks of the group? */
static bool has_same_places(const Rt *rt, const RtGroup *group)
{
    bool same = true;
    for (int i = 0; i < group->naxes; i++)
        same &= !rt_places_differ_along(rt, group->axis[i]);
    return same;
}

void *rt_nccl_memory_open(Rt *rt, int64_t bytes)
{
    static const char *const names[] = { MEMORY_FUNCTIONS(RT_FUNCTION_NAME) };
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    struct RtNcclMemory *memory = rt->gpu->nccl_memory = rt_allocate(1, sizeof *memory);
    void *arena = NULL;
    rt_library_load("NCCL", "libnccl.so.2", sizeof names / sizeof *names, names, memory->at);
    if (memory->ncclMemAlloc(&arena, (size_t)bytes) != ncclSuccess)
        return NULL;
    memory->handle = rt_allocate(c->nchannels, sizeof *memory->handle);
    for (int i = 0; i < c->nchannels; i++) {
        const RtNcclChannel *channel = &c->channel[i];
        if (has_same_places(rt, channel->group))
            rt_nccl_await(rt, channel, "register the arena",
                          memory->ncclCommRegister(channel->comm, arena, (size_t)bytes, &memory->handle[i]));
    }
    return arena;
}

void rt_nccl_memory_release(Rt *rt)
{
    struct RtNcclMemory *memory = rt->gpu->nccl_memory;
    const struct RtGpuCollectives *c = rt->gpu->collectives;
    for (int i = 0; memory && i < c->nchannels; i++)
        if (memory->handle[i])
            rt_nccl_await(rt, &c->channel[i], "release the arena",
                          memory->ncclCommDeregister(c->channel[i].comm, memory->handle[i]));
}

void rt_nccl_memory_close(Rt *rt)
{
    struct RtNcclMemory *memory = rt->gpu->nccl_memory;
    if (memory->ncclMemFree(rt->arena) != ncclSuccess)
        rt_fail("%s: NCCL cannot free the arena", rt->gpu->name);
    free(memory->handle);
    free(memory);
}
