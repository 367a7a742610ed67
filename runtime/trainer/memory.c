/* memory.c -- prints the memory of a trainer on its device. */
#include "memory.h"

#include "device.h"

#include <stdlib.h>

int64_t rt_memory_bytes(const Rt *rt)
{
    return rt->program->arena_bytes + rt_products_workspace_bytes(rt) + rt_collectives_workspace_bytes(rt);
}

void rt_memory_print(const Rt *rt)
{
    const RtProgram *program = rt->program;
    char *messages = rt->ranks > 1 ? rt_text(", %s of collectives; each of %d ranks",
                                             rt_bytes_text((double)rt_collectives_workspace_bytes(rt)).text, rt->ranks)
                                   : rt_text("%s", "");
    rt_note("memory: %s planned (%s tensors that stay, %s of a step), %s workspace of products%s",
            rt_bytes_text((double)program->arena_bytes).text, rt_bytes_text((double)program->state_bytes).text,
            rt_bytes_text((double)(program->arena_bytes - program->state_bytes)).text,
            rt_bytes_text((double)rt_products_workspace_bytes(rt)).text, messages);
    free(messages);
}
