/* stage_clock.c -- linked into a trainer of a pipeline, whose rt_pipeline it wraps: when each action of its stage began
 * and ended, in seconds of the machine's clock, which all processes share.
 *
 * Writes lines "STEP KIND CHUNK MICRO BEGIN END" to the file $STAGE_CLOCK.RANK. */
#include "../tests/mutate/schedule/actions.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void __real_rt_pipeline(Rt *rt, const RtPipeline *p, char *arena);

static FILE *out;
static int step;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void act(Rt *rt, char *arena, int64_t micro, int kind, int chunk)
{
    const double begin = now();
    own_action[kind][chunk](rt, arena, micro);
    fprintf(out, "%d %c %d %lld %.9f %.9f\n", step, "FBW"[kind], chunk, (long long)micro, begin, now());
}

static void open_file(const Rt *rt, const RtPipeline *p)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", getenv("STAGE_CLOCK"), rt_coordinate(rt, p->axis));
    out = fopen(path, "w");
}

void __wrap_rt_pipeline(Rt *rt, const RtPipeline *p, char *arena)
{
    RtPipeline timed = *p;
    if (!out)
        open_file(rt, p);
    wrap_actions(&timed);
    __real_rt_pipeline(rt, &timed, arena);
    fflush(out);
    step++;
}
