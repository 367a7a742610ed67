/* flip.h -- compiled into a trainer of a test (--cflags "-include tests/ranks/flip.h"): a bit of a tensor flips in a
 * step, or a rank is slow.
 *
 *   FLIPS=FILE      each flip is a line there: step, run of it, rank, tensor, element of the rank's part
 *   FLIP_EVERY=N    one on some rank in each Nth step: in its first run or in its second one, before or after it
 *   FLIP_RUNS=N     one in each of the first N runs of such a step
 *   FLIP_ONLY=after only after a run, so that the tensor alone has another result
 *   SLOW_RANK=N     works SLOW_MS milliseconds longer in each step
 */
#ifndef MPC_TESTS_FLIP_H
#define MPC_TESTS_FLIP_H

#include "device.h"
#include "philox.h"
#include "rt.h"
#include "state.h"
#include "store/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void (*unflipped_step)(Rt *rt, char *arena);

static uint32_t flip_number(uint32_t step, uint32_t run, uint32_t what, uint32_t below)
{
    return rt_philox(20, step, run, what, 0, 0).x[0] % below;
}

static long flip_setting(const char *name, long otherwise) { return getenv(name) ? atol(getenv(name)) : otherwise; }

static void flip_note(const Rt *rt, uint32_t step, uint32_t run, const RtView *view, int64_t element, bool before)
{
    FILE *file = getenv("FLIPS") ? fopen(getenv("FLIPS"), "a") : NULL;
    if (file && (fprintf(file, "%u %u %d %s %lld %s\n", step, run, rt->rank, view->name, (long long)element,
                         before ? "before" : "after") < 0 ||
                 fclose(file)))
        abort();
}

/* Of one of the tensors that this rank holds, any bit of any element. */
static void flip_bit(const Rt *rt, uint32_t step, uint32_t run, bool before)
{
    int count, held = 0;
    RtView *views = rt_views(rt, &count);
    for (int i = 0; i < count; i++)
        if (views[i].is_held)
            views[held++] = views[i];
    const RtView *view = &views[flip_number(step, run, 1, (uint32_t)held)];
    int64_t at = 0, element = 0;
    for (int d = 0; d < view->rank; d++) {
        int64_t index = flip_number(step, run, 2 + (uint32_t)d, (uint32_t)view->size[d]);
        at += index * view->stride[d];
        element = element * view->size[d] + index;
    }
    const int bits = view->type == RT_F32 || view->type == RT_I32 ? 32 : 16;
    const uint32_t bit = flip_number(step, run, 20, (uint32_t)bits);
    char *window = rt_view_open(rt, view);
    window[at * bits / 8 + bit / 8] ^= (char)(1 << bit % 8);
    rt_view_close(rt, view, window, true);
    flip_note(rt, step, run, view, element, before);
}

static void flipping_step(Rt *rt, char *arena)
{
    static uint32_t last, run;
    int32_t number;
    rt_download(rt, &number, rt_own_place(rt, rt->program->step.scalars.step), sizeof number);
    const uint32_t step = (uint32_t)number + 1;
    run = step == last ? run + 1 : 1;
    last = step;
    const uint32_t runs = (uint32_t)flip_setting("FLIP_RUNS", 0), every = (uint32_t)flip_setting("FLIP_EVERY", 0);
    const bool flips = every && step % every == 0 && (runs ? run <= runs : run == 1 + flip_number(step, 0, 0, 2));
    const bool is_here = flips && flip_number(step, run, 30, (uint32_t)rt->ranks) == (uint32_t)rt->rank;
    const bool before = !getenv("FLIP_ONLY") && flip_number(step, run, 31, 2) == 0;
    if (is_here && before)
        flip_bit(rt, step, run, true);
    unflipped_step(rt, arena);
    if (flip_setting("SLOW_RANK", -1) == rt->rank)
        usleep((useconds_t)(1000 * flip_setting("SLOW_MS", 0)));
    if (is_here && !before)
        flip_bit(rt, step, run, false);
}

static int flipping_main(int argc, char **argv, const RtProgram *program)
{
    static RtProgram flipping;
    flipping = *program;
    unflipped_step = program->step.run;
    flipping.step.run = flipping_step;
    return rt_main(argc, argv, &flipping);
}
#define rt_main flipping_main

#endif
