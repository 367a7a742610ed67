/* memory.c -- the memory of a rank on its device: where its tensors are, and how much it is. */
#include "memory.h"

#include "device.h"
#include "mesh/comm.h"

#include <stdlib.h>

int64_t rt_at(const Rt *rt, const RtKinds *kinds, int64_t offset)
{
    int64_t left_out = 0;
    for (const RtGap *gap = kinds->gap[rt_coordinate(rt, kinds->axis)]; gap->bytes && gap->at < offset; gap++)
        left_out += offset - gap->at < gap->bytes ? offset - gap->at : gap->bytes;
    return offset - left_out;
}

int64_t rt_place_in(const Rt *rt, const RtFunction *f, int64_t offset)
{
    return f->kinds ? rt_at(rt, f->kinds, offset) : offset;
}

int64_t rt_own_place(const Rt *rt, int64_t offset) { return rt_place_in(rt, &rt->program->step, offset); }

int64_t rt_arena_bytes(const Rt *rt)
{
    const RtProgram *program = rt->program;
    const RtFunction *const all[] = { &program->step, &program->eval, &program->predict };
    int64_t most = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t bytes = all[i]->run ? rt_place_in(rt, all[i], program->arena_bytes) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

int64_t rt_state_bytes(const Rt *rt) { return rt_own_place(rt, rt->program->state_bytes); }

int64_t rt_memory_bytes(const Rt *rt)
{
    return rt_arena_bytes(rt) + rt_products_workspace_bytes(rt) + rt_collectives_workspace_bytes(rt);
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
    char *messages = rt_text("%s", "");
    if (rt->ranks > 1)
        rt_append(&messages, ", %s of collectives; ", rt_bytes_text((double)rt_collectives_workspace_bytes(rt)).text);
    if (rt->program->step.kinds)
        rt_append(&messages, "rank 0 of %d, at most %s on one", rt->ranks, rt_bytes_text(most).text);
    else if (rt->ranks > 1)
        rt_append(&messages, "each of %d ranks", rt->ranks);
    rt_note("memory: %s planned (%s tensors that stay, %s of a step), %s workspace of products%s",
            rt_bytes_text((double)rt_arena_bytes(rt)).text, rt_bytes_text((double)rt_state_bytes(rt)).text,
            rt_bytes_text((double)(rt_arena_bytes(rt) - rt_state_bytes(rt))).text,
            rt_bytes_text((double)rt_products_workspace_bytes(rt)).text, messages);
    free(messages);
}
