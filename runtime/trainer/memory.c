/* memory.c -- the memory of a rank on its device: where its tensors are, and how much it is. */
#include "memory.h"

#include "device.h"

#include <stdlib.h>

int64_t rt_at(const Rt *rt, const RtKinds *kinds, int64_t offset)
{
    int64_t left_out = 0;
    for (const RtGap *gap = kinds->gap[rt_coordinate(rt, kinds->axis)]; gap->bytes && gap->at < offset; gap++)
        left_out += offset - gap->at < gap->bytes ? offset - gap->at : gap->bytes;
    return offset - left_out;
}

int64_t rt_place(const Rt *rt, int64_t offset)
{
    return rt->program->kinds ? rt_at(rt, rt->program->kinds, offset) : offset;
}

int64_t rt_arena_bytes(const Rt *rt) { return rt_place(rt, rt->program->arena_bytes); }
int64_t rt_state_bytes(const Rt *rt) { return rt_place(rt, rt->program->state_bytes); }

int64_t rt_memory_bytes(const Rt *rt)
{
    return rt_arena_bytes(rt) + rt_products_workspace_bytes(rt) + rt_collectives_workspace_bytes(rt);
}

void rt_memory_print(const Rt *rt)
{
    char *messages = rt->ranks > 1 ? rt_text(", %s of collectives; each of %d ranks",
                                             rt_bytes_text((double)rt_collectives_workspace_bytes(rt)).text, rt->ranks)
                                   : rt_text("%s", "");
    rt_note("memory: %s planned (%s tensors that stay, %s of a step), %s workspace of products%s",
            rt_bytes_text((double)rt_arena_bytes(rt)).text, rt_bytes_text((double)rt_state_bytes(rt)).text,
            rt_bytes_text((double)(rt_arena_bytes(rt) - rt_state_bytes(rt))).text,
            rt_bytes_text((double)rt_products_workspace_bytes(rt)).text, messages);
    free(messages);
}
