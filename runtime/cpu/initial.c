/* initial.c -- initial values on the processor. */
#include "kernels/initial.h"
#include "device.h"

void rt_fill_initial(Rt *rt, int count, const RtInitial *tensors)
{
    for (int i = 0; i < count; i++) {
        const RtInitial *t = &tensors[i];
#pragma omp parallel for schedule(static)
        for (int64_t element = 0; element < t->count; element++)
            rt_set_initial(t, rt->arena, element);
    }
}
