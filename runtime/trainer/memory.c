/* memory.c -- the memory that a rank needs on its device. */
#include "memory.h"

#include "device.h"
#include "far/far.h"
#include "mesh/comm.h"

#include <stdlib.h>

int64_t rt_memory_bytes(const Rt *rt)
{
    return rt_arena_bytes(rt) + rt_libraries_workspace_bytes(rt) + rt_collectives_workspace_bytes(rt) +
           rt_far_workspace_bytes(rt) + rt_copies_bytes(rt);
}

int64_t *rt_memory_of_ranks(Rt *rt)
{
    int64_t own = rt_memory_bytes(rt), *all = rt_allocate(rt->ranks, sizeof *all);
    rt_comm_gather(rt, &own, sizeof own, (char *)all);
    return all;
}

void rt_memory_print(Rt *rt)
{
    const double most = rt_comm_max(rt, (double)rt_memory_bytes(rt));
    char *messages = rt_text("%s", ""), *taken = rt_collectives_taken(rt);
    if (rt_copies_bytes(rt))
        rt_append(&messages, ", %s of copies", rt_bytes_text((double)rt_copies_bytes(rt)).text);
    if (rt->ranks > 1)
        rt_append(&messages, ", %s of collectives", rt_bytes_text((double)rt_collectives_workspace_bytes(rt)).text);
    if (taken)
        rt_append(&messages, ", %s", taken);
    if (rt->far)
        rt_append(&messages, ", %s on %s", rt_bytes_text((double)rt->program->far_bytes).text,
                  rt->far->disk ? "disk" : "the host");
    if (rt_far_workspace_bytes(rt))
        rt_append(&messages, " (%s of buffers)", rt_bytes_text((double)rt_far_workspace_bytes(rt)).text);
    if (rt->program->step.kinds)
        rt_append(&messages, "; rank 0 of %d, at most %s on one", rt->ranks, rt_bytes_text(most).text);
    else if (rt->ranks > 1)
        rt_append(&messages, "; each of %d ranks", rt->ranks);
    rt_note("memory: %s planned (%s tensors that stay, %s of a step), %s workspace of libraries%s",
            rt_bytes_text((double)rt_arena_bytes(rt)).text, rt_bytes_text((double)rt_state_bytes(rt)).text,
            rt_bytes_text((double)(rt_arena_bytes(rt) - rt_state_bytes(rt))).text,
            rt_bytes_text((double)rt_libraries_workspace_bytes(rt)).text, messages);
    free(messages);
    free(taken);
}
