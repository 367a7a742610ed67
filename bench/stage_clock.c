/* stage_clock.c -- linked into a trainer of a pipeline, whose rt_pipeline it wraps: when each action of its stage began
 * and ended, in seconds of the machine's clock, which all processes share.
 *
 * Appends lines "STEP KIND MICRO BEGIN END" to the file $STAGE_CLOCK.STAGE. */
#include "rt.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void __real_rt_pipeline(Rt *rt, const RtPipeline *p, char *arena);

static FILE *out;
static int step;
static void (*const *action)(Rt *rt, char *arena, int64_t micro);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void act(Rt *rt, char *arena, int64_t micro, int kind)
{
    const double begin = now();
    action[kind](rt, arena, micro);
    fprintf(out, "%d %c %lld %.9f %.9f\n", step, "FBW"[kind], (long long)micro, begin, now());
}

static void forward(Rt *rt, char *arena, int64_t micro) { act(rt, arena, micro, RT_FORWARD); }
static void backward(Rt *rt, char *arena, int64_t micro) { act(rt, arena, micro, RT_BACKWARD); }
static void weights(Rt *rt, char *arena, int64_t micro) { act(rt, arena, micro, RT_WEIGHTS); }

void __wrap_rt_pipeline(Rt *rt, const RtPipeline *p, char *arena)
{
    RtPipeline timed = *p;
    char path[4096];
    if (!out) {
        snprintf(path, sizeof path, "%s.%d", getenv("STAGE_CLOCK"), rt_coordinate(rt, p->axis));
        out = fopen(path, "w");
    }
    action = p->action;
    timed.action[RT_FORWARD] = forward;
    timed.action[RT_BACKWARD] = backward;
    timed.action[RT_WEIGHTS] = p->action[RT_WEIGHTS] ? weights : NULL;
    __real_rt_pipeline(rt, &timed, arena);
    fflush(out);
    step++;
}
