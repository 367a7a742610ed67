/* average.c -- --ema: evaluation and samples with the mean of weights that a trainer with train.ema keeps.
 *
 * The mean is state of the optimizer, with the name "ema" and the layout of the weights: the two change places before
 * the weights are read, and again after. */
#include "device.h"
#include "store/tensors.h"
#include "train.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 1 << 16 };

bool rt_has_average(const RtProgram *program)
{
    bool has = false;
    for (const RtTensor *t = program->tensors; t < program->tensors + program->ntensors; t++)
        has |= t->state && strcmp(t->state, "ema") == 0;
    return has;
}

static const RtView *view_named(const RtView *views, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(views[i].name, name) == 0)
            return &views[i];
    return NULL;
}

/* Before the first update the mean has no value: steps of fp16 that overflowed are none. */
static bool is_begun(RtRun *run, const RtView *views, int count)
{
    const RtView *applied = view_named(views, count, "optimizer.applied_steps");
    int32_t steps = !applied && run->place.step > 0;
    if (applied && applied->is_held) {
        char *window = rt_view_open(&run->rt, applied);
        rt_view_read(applied, window, 0, 1, &steps);
        rt_view_close(&run->rt, applied, window, false);
    }
    return rt_comm_max(&run->rt, steps) > 0;
}

static void exchange(const Rt *rt, const RtView *a, const RtView *b, float *of_a, float *of_b)
{
    RtRanges ranges = rt_ranges(a);
    char *window_a = rt_view_open(rt, a), *window_b = rt_view_open(rt, b);
    for (RtRange range; rt_next_range(&ranges, &range);)
        for (int64_t first = 0; first < range.count; first += AT_ONCE) {
            int64_t left = range.count - first, count = left < AT_ONCE ? left : AT_ONCE, own = range.own + first;
            rt_view_read(a, window_a, own, count, of_a);
            rt_view_read(b, window_b, own, count, of_b);
            rt_view_write(a, window_a, own, count, of_b);
            rt_view_write(b, window_b, own, count, of_a);
        }
    rt_view_close(rt, a, window_a, true);
    rt_view_close(rt, b, window_b, true);
}

void rt_exchange_average(RtRun *run)
{
    static const char prefix[] = "optimizer.ema.";
    int count;
    if (!run->options.ema)
        return;
    rt_copy_wait(&run->rt);
    RtView *views = rt_views(&run->rt, &count);
    float *buffer = rt_allocate(2 * AT_ONCE, sizeof *buffer);
    const bool begun = is_begun(run, views, count);
    for (int i = 0; i < count && begun; i++)
        if (strncmp(views[i].name, prefix, sizeof prefix - 1) == 0)
            exchange(&run->rt, view_named(views, count, views[i].name + sizeof prefix - 1), &views[i], buffer,
                     buffer + AT_ONCE);
    free(buffer);
    rt_views_free(views, count);
}
