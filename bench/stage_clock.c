/* stage_clock.c -- linked into a trainer of a pipeline, whose rt_pipeline it wraps: when each action of its stage began
 * and ended, in seconds of the machine's clock, which all processes share.
 *
 * Writes lines "STEP KIND CHUNK MICRO BEGIN END" to the file $STAGE_CLOCK.RANK. */
#include "rt.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void __real_rt_pipeline(Rt *rt, const RtPipeline *p, char *arena);

enum { CHUNKS = 2 }; /* at most */

static FILE *out;
static int step;
static void (*const *action[RT_ACTIONS])(Rt *rt, char *arena, int64_t micro);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void act(Rt *rt, char *arena, int64_t micro, int kind, int chunk)
{
    const double begin = now();
    action[kind][chunk](rt, arena, micro);
    fprintf(out, "%d %c %d %lld %.9f %.9f\n", step, "FBW"[kind], chunk, (long long)micro, begin, now());
}

#define ACTION(name, kind, chunk)                                                                                      \
    static void name(Rt *rt, char *arena, int64_t micro) { act(rt, arena, micro, kind, chunk); }
ACTION(forward_0, RT_FORWARD, 0)
ACTION(forward_1, RT_FORWARD, 1)
ACTION(backward_0, RT_BACKWARD, 0)
ACTION(backward_1, RT_BACKWARD, 1)
ACTION(weights_0, RT_WEIGHTS, 0)
ACTION(weights_1, RT_WEIGHTS, 1)

static void open_file(const Rt *rt, const RtPipeline *p)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", getenv("STAGE_CLOCK"), rt_coordinate(rt, p->axis));
    out = fopen(path, "w");
}

void __wrap_rt_pipeline(Rt *rt, const RtPipeline *p, char *arena)
{
    static void (*const clocked[RT_ACTIONS][CHUNKS])(
        Rt *, char *, int64_t) = { { forward_0, forward_1 }, { backward_0, backward_1 }, { weights_0, weights_1 } };
    void (*used[RT_ACTIONS][CHUNKS])(Rt *, char *, int64_t);
    RtPipeline timed = *p;
    if (!out)
        open_file(rt, p);
    for (int kind = 0; kind < RT_ACTIONS; kind++) {
        for (int chunk = 0; chunk < p->chunks; chunk++)
            used[kind][chunk] = p->action[kind][chunk] ? clocked[kind][chunk] : NULL;
        action[kind] = p->action[kind];
        timed.action[kind] = used[kind];
    }
    __real_rt_pipeline(rt, &timed, arena);
    fflush(out);
    step++;
}
