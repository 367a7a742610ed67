/* initial.c -- initial values on the processor. */
#include "kernels/initial.h"
#include "device.h"
#include "far/far.h"

/* `memory`: where its offset counts from. */
static void fill(const RtInitial *t, char *memory)
{
#pragma omp parallel for schedule(static)
    for (int64_t element = 0; element < t->count; element++)
        rt_set_initial(t, memory, element);
}

/* From its first element to the end of its last. */
static int64_t span_of(const RtInitial *t)
{
    int64_t last = 0;
    for (int d = 0; d < t->rank; d++)
        last += (t->dim[d].size - 1) * t->dim[d].stride;
    return (last + 1) * (t->type == RT_F32 || t->type == RT_I32 ? 4 : 2);
}

void rt_fill_initial(Rt *rt, int count, const RtInitial *tensors)
{
    for (int i = 0; i < count; i++) {
        RtInitial t = tensors[i];
        if (!rt_is_far(rt, t.offset)) {
            fill(&t, rt->arena);
            continue;
        }
        char *window = rt_window_open(rt, t.offset, span_of(&t));
        t.offset = 0;
        fill(&t, window);
        rt_window_close(rt, window, tensors[i].offset, span_of(&t), true);
    }
}
