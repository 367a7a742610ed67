/* init.c -- the initial values of this rank's parts of the tensors: see kernels/initial.h. */
#include "device.h"
#include "store/tensors.h"

#include <stdlib.h>

/* Adds the next outer dim.  It is one with the dim inside it, if that is whole and contiguous. */
static void add_dim(RtInitial *t, RtInitialDim dim)
{
    RtInitialDim *inner = t->rank ? &t->dim[t->rank - 1] : NULL;
    const int64_t n = inner ? inner->size : 0;
    if (!inner || n != inner->whole || inner->part.first || inner->part.jump || dim.stride != n * inner->stride) {
        t->dim[t->rank++] = dim;
        return;
    }
    const RtPart part = { dim.part.first * n, dim.part.jump_from * n, dim.part.jump * n,
                          dim.part.begin * n, dim.part.period * n,    dim.part.skip * n };
    *inner = (RtInitialDim){ dim.size * n, dim.whole * n, inner->stride, part };
}

static RtInitial initial_of(const RtView *view, uint32_t seed)
{
    RtInitial t = { .init = view->tensor->init,
                    .type = view->type,
                    .seed = seed,
                    .hash = view->hash,
                    .offset = view->offset,
                    .count = 1 };
    for (int d = view->rank - 1; d >= 0; d--) {
        add_dim(&t, (RtInitialDim){ view->size[d], view->whole[d], view->stride[d], view->part[d] });
        t.count *= view->size[d];
    }
    return t;
}

int64_t rt_initial_bytes(const RtInitial *t)
{
    int64_t last = 0;
    for (int d = 0; d < t->rank; d++)
        last += (t->dim[d].size - 1) * t->dim[d].stride;
    return (last + 1) * (t->type == RT_F32 || t->type == RT_I32 ? 4 : 2);
}

void rt_init_tensors(Rt *rt, uint32_t seed, bool with_parameters)
{
    const RtProgram *program = rt->program;
    for (const RtTensor *t = program->tensors; t < program->tensors + program->ntensors; t++)
        rt_zero(rt, rt_own_place(rt, t->offset),
                rt_own_place(rt, t->offset + t->stored_bytes) - rt_own_place(rt, t->offset));
    int count, filled = 0;
    RtView *views = rt_views(rt, &count);
    RtInitial *initial = rt_allocate(count, sizeof *initial);
    for (int i = 0; i < count; i++)
        if (views[i].is_held && views[i].tensor->init.kind != RT_ZEROS && (with_parameters || views[i].is_state))
            initial[filled++] = initial_of(&views[i], seed);
    rt_fill_initial(rt, filled, initial);
    free(initial);
    rt_views_free(views, count);
}
