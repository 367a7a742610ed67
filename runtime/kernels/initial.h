/* initial.h -- initial values, on both devices.  Element i (counted row by row) of the whole tensor with the full name
 * T depends only on seed, T and i, so that every layout starts with the same weights: Philox with the key (seed, FNV-1a
 * of T) and the counter (i, i >> 32, 0, 0).  Its outputs x are mapped to (0, 1) by u = (x + 1/2) / 2^32.  All of it is
 * computed in f64 and rounded once. */
#ifndef MPC_KERNELS_INITIAL_H
#define MPC_KERNELS_INITIAL_H

#include "../philox.h"
#include "../types.h"
#include "element.h"

/* Standard normal, from two outputs (G. E. P. Box, M. E. Muller, 1958). */
RT_INLINE double rt_normal(RtPhilox random)
{
    const double pi = 3.14159265358979323846;
    return sqrt(-2 * log(rt_unit(random.x[0]))) * cos(2 * pi * rt_unit(random.x[1]));
}

/* Of element i of the whole tensor. */
RT_INLINE double rt_initial_value(const RtInitial *t, int64_t i)
{
    const RtInit init = t->init;
    if (init.kind == RT_ZEROS || init.kind == RT_ONES || init.kind == RT_CONSTANT)
        return init.kind == RT_CONSTANT ? init.a : init.kind == RT_ONES ? 1 : 0;
    const RtPhilox random = rt_philox(t->seed, t->hash, (uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0, 0);
    return init.kind == RT_NORMAL ? init.a * rt_normal(random) : init.a + (init.b - init.a) * rt_unit(random.x[0]);
}

/* Sets element i of this rank's part, unless it is padding. */
RT_INLINE void rt_set_initial(const RtInitial *t, char *arena, int64_t i)
{
    int64_t whole = 0, step = 1, place = 0;
    for (int d = 0; d < t->rank; d++) {
        const RtInitialDim *dim = &t->dim[d];
        const int64_t at = rt_position(dim->part, i % dim->size);
        if (at >= dim->whole)
            return;
        place += i % dim->size * dim->stride;
        whole += at * step;
        step *= dim->whole;
        i /= dim->size;
    }
    const double value = rt_initial_value(t, whole);
    char *tensor = arena + t->offset;
    if (t->type == RT_I32)
        ((int32_t *)tensor)[place] = (int32_t)value;
    else if (t->type == RT_BF16)
        ((rt_bf16 *)tensor)[place] = rt_store_bf16((float)value);
    else if (t->type == RT_F16)
        ((rt_f16 *)tensor)[place] = rt_store_f16((float)value);
    else
        ((float *)tensor)[place] = (float)value;
}

#endif
