/* init.c -- initial values.  Element i (counted row by row) of the tensor with the full name T depends only on seed, T
 * and i, so that every layout starts with the same weights: Philox with the key (seed, FNV-1a of T) and the counter (i,
 * i >> 32, 0, 0).  Its outputs x are mapped to (0, 1) by u = (x + 1/2) / 2^32. */
#include "device.h"
#include "philox.h"
#include "store/tensors.h"

#include <math.h>
#include <string.h>

/* FNV-1a of 32 bits (G. Fowler, L. C. Noll, P. Vo; RFC 9923). */
static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* Standard normal, from two outputs (G. E. P. Box, M. E. Muller, 1958). */
static double normal(RtPhilox random)
{
    const double pi = 3.14159265358979323846;
    return sqrt(-2 * log(rt_unit(random.x[0]))) * cos(2 * pi * rt_unit(random.x[1]));
}

static double initial_value(RtInit init, uint32_t seed, uint32_t hash, int64_t i)
{
    switch (init.kind) {
    case RT_ZEROS:
        return 0;
    case RT_ONES:
        return 1;
    case RT_CONSTANT:
        return init.a;
    case RT_NORMAL:
        return init.a * normal(rt_philox(seed, hash, (uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0, 0));
    case RT_UNIFORM:
        return init.a + (init.b - init.a) *
                            rt_unit(rt_philox(seed, hash, (uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0, 0).x[0]);
    }
    return NAN; /* no such kind */
}

enum { AT_ONCE = 256 };

static void init_range(const RtView *view, char *window, uint32_t seed, uint32_t hash, RtRange range)
{
    union {
        float f32;
        int32_t i32;
    } values[AT_ONCE];
    for (int64_t i = 0; i < range.count; i++) {
        double value = initial_value(view->tensor->init, seed, hash, range.whole + i);
        if (rt_view_file_type(view) == RT_I32)
            values[i].i32 = (int32_t)value;
        else
            values[i].f32 = (float)value;
    }
    rt_view_write(view, window, range.own, range.count, values);
}

static void init_view(const Rt *rt, const RtView *view, uint32_t seed)
{
    uint32_t hash = hash_of(view->name);
    RtRanges ranges = rt_ranges(view);
    char *window = rt_view_open(rt, view);
    for (RtRange range; rt_next_range(&ranges, &range);) {
#pragma omp parallel for schedule(static)
        for (int64_t first = 0; first < range.count; first += AT_ONCE) {
            int64_t left = range.count - first;
            init_range(view, window, seed, hash,
                       (RtRange){ range.own + first, range.whole + first, left < AT_ONCE ? left : AT_ONCE });
        }
    }
    rt_view_close(rt, view, window, true);
}

void rt_init_tensors(Rt *rt, uint32_t seed, bool with_parameters)
{
    const RtProgram *program = rt->program;
    for (const RtTensor *t = program->tensors; t < program->tensors + program->ntensors; t++)
        rt_zero(rt, rt_own_place(rt, t->offset),
                rt_own_place(rt, t->offset + t->stored_bytes) - rt_own_place(rt, t->offset));
    int count;
    RtView *views = rt_views(rt, &count);
    for (int i = 0; i < count; i++)
        if (views[i].tensor->init.kind != RT_ZEROS && (with_parameters || views[i].is_state))
            init_view(rt, &views[i], seed);
    rt_views_free(views, count);
}
