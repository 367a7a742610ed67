/* attention.c -- runs attention by the implementation that attention_choose.c has taken: cuDNN, the kernel for Hopper,
 * or the general kernels of the program. */
#include "attention.h"

#include "gpu.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_VERSION = 91200, ALIGNMENT = 16 /* bytes, of all operands */ };

/* --- Start and end -------------------------------------------------------------------------- */

/* False with the reason if cuDNN cannot be used. */
static bool open_cudnn(Rt *rt, struct RtGpuAttentions *all, const char **reason)
{
    enum { FUNCTIONS = sizeof rt_cudnn_names / sizeof *rt_cudnn_names };
    RtCudnn *cudnn = &all->cudnn;
    *reason = "libcudnn.so.9 is not found";
    if (!rt_library_find("libcudnn.so.9", FUNCTIONS, rt_cudnn_names, cudnn->call.at))
        return false;
    *reason = "cuDNN is older than 9.12";
    if (cudnn->call.cudnnGetVersion() < LEAST_VERSION)
        return false;
    *reason = "cuDNN does not start";
    return cudnn->call.cudnnCreate(&cudnn->handle) == 0 &&
           cudnn->call.cudnnSetStream(cudnn->handle, rt->gpu->compute) == 0;
}

void rt_gpu_attentions_open(Rt *rt)
{
    const RtCode *code = rt->program->code;
    const char *reason;
    if (code->nattentions == 0)
        return;
    struct RtGpuAttentions *all = rt->gpu->attentions = rt_allocate(1, sizeof *all);
    all->count = code->nattentions;
    all->attention = rt_allocate(all->count, sizeof *all->attention);
    for (int i = 0; i < all->count; i++)
        all->attention[i].shape = &code->attentions[i];
    rt_attention_open_hopper(rt, all);
    if (rt->gpu->options.no_cudnn)
        return;
    if (open_cudnn(rt, all, &reason))
        all->version = all->cudnn.call.cudnnGetVersion();
    else
        rt_note("attention: by the program's own kernels, since %s (--no-cudnn does not look for it)", reason);
}

void rt_gpu_attentions_close(Rt *rt)
{
    struct RtGpuAttentions *all = rt->gpu->attentions;
    if (!all)
        return;
    for (int i = 0; i < all->count; i++)
        rt_cudnn_close(&all->attention[i].graph);
    if (all->cudnn.handle)
        all->cudnn.call.cudnnDestroy(all->cudnn.handle);
    rt_gpu_check(rt, cudaFree(all->workspace), "free memory");
    free(all->attention);
    free(all);
}

/* --- Plans ---------------------------------------------------------------------------------- */

bool rt_attention_plan(const struct RtGpuAttentions *all, RtAttention *attention, int64_t most_workspace)
{
    attention->graph = rt_cudnn_graph(&all->cudnn);
    rt_attention_describe(&attention->graph, attention->shape);
    if (!rt_cudnn_plan(&attention->graph, most_workspace))
        rt_cudnn_close(&attention->graph);
    return attention->graph.plan != NULL;
}

bool rt_attention_by_cudnn(const RtAttention *attention, const void *const operands[], void *workspace)
{
    const RtAttentionShape *s = attention->shape;
    int64_t number[RT_ATTEND_END];
    void *at[RT_ATTEND_END];
    int count = 0;
    for (; count < rt_attention_operands(s); count++) {
        number[count] = count + 1;
        at[count] = (void *)(uintptr_t)operands[count];
    }
    float scale = s->scale, lowest = -INFINITY, window = (float)s->window, one = 1;
    const struct {
        int number;
        float *value;
        bool is_used;
    } numbers[] = { { RT_ATTEND_SCALE, &scale, true },
                    { RT_ATTEND_LOWEST, &lowest, s->causal },
                    { RT_ATTEND_WINDOW, &window, s->window > 0 },
                    { RT_ATTEND_ONE, &one, s->is_gradient } };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].is_used) {
            number[count] = numbers[i].number;
            at[count++] = numbers[i].value;
        }
    return rt_cudnn_run(&attention->graph, count, number, at, workspace);
}

/* --- Running -------------------------------------------------------------------------------- */

static bool are_aligned(const void *const operands[], int count)
{
    uintptr_t all = 0;
    for (int i = 0; i < count; i++)
        all |= (uintptr_t)operands[i];
    return all % ALIGNMENT == 0;
}

void rt_attention(Rt *rt, int id, const void *const operands[])
{
    const struct RtGpuAttentions *all = rt->gpu->attentions;
    const RtAttention *attention = &all->attention[id];
    if (attention->by == RT_BY_KERNELS || !are_aligned(operands, rt_attention_operands(attention->shape)))
        rt_launch(rt, attention->shape->kernels, operands);
    else if (attention->by == RT_BY_HOPPER && !rt_attention_by_hopper(rt, attention, operands))
        rt_fail("%s: %s cannot be launched any more (--no-hopper goes without)", rt->gpu->name,
                attention->shape->hopper.name);
    else if (attention->by == RT_BY_CUDNN && !rt_attention_by_cudnn(attention, operands, all->workspace))
        rt_fail("%s: cuDNN cannot compute attention any more (--no-cudnn goes without)", rt->gpu->name);
}
