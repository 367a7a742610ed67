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

void rt_fill_initial(Rt *rt, int count, const RtInitial *tensors)
{
    for (int i = 0; i < count; i++) {
        RtInitial t = tensors[i];
        if (!rt_is_far(rt, t.offset)) {
            fill(&t, rt->arena);
            continue;
        }
        char *window = rt_window_open(rt, t.offset, rt_initial_bytes(&t));
        t.offset = 0;
        fill(&t, window);
        rt_window_close(rt, window, tensors[i].offset, rt_initial_bytes(&t), true);
    }
}
