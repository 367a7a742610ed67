/* traffic.c -- collectives on both devices: names and statistics. */
#include "comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- Names -------------------------------------------------------------------------------------- */

static const char *name_of_kind(RtCollectiveKind kind)
{
    static const char *const names[] = { "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "rotate" };
    return names[kind];
}

char *rt_axes_text(const Rt *rt, int naxes, const int axis[])
{
    char *text = rt_text("%s", "");
    for (int i = 0; i < naxes; i++)
        rt_append(&text, "%s%s", i ? ", " : "", rt->program->axes[axis[i]].name);
    return text;
}

char *rt_collective_text(const Rt *rt, const RtCollective *c)
{
    return c ? rt_text("%s over %s at '%s' (%s; %s)", name_of_kind(c->kind), rt_axes_text(rt, c->naxes, c->axis),
                       c->name, c->where, c->cause)
             : rt_text("the barrier between two steps");
}

/* --- Statistics ----------------------------------------------------------------------------------- */

void rt_traffic_open(Rt *rt, double timeout)
{
    rt->waiting.timeout = timeout;
    rt->waiting.is_awaited = true;
    rt->traffic = rt_allocate(rt->program->ncollectives, sizeof *rt->traffic);
}

void rt_traffic_close(Rt *rt)
{
    free(rt->traffic);
    rt->traffic = NULL;
}

RtTraffic rt_collectives_traffic(const Rt *rt)
{
    RtTraffic sum = { 0 };
    for (int i = 0; rt->traffic && i < rt->program->ncollectives; i++) {
        const RtTraffic *t = &rt->traffic[i];
        sum.calls += t->calls;
        sum.sent_bytes += t->sent_bytes;
        sum.seconds += t->seconds;
        sum.waited += t->waited;
    }
    return sum;
}

typedef struct {
    char text[16];
} Seconds;

static Seconds seconds_text(double seconds)
{
    Seconds s = { "-" };
    if (!isnan(seconds))
        snprintf(s.text, sizeof s.text, "%.4f", seconds);
    return s;
}

void rt_collectives_print(const Rt *rt)
{
    printf("%-14s %-10s %8s %14s %10s %10s  %s\n", "collective", "over", "calls", "bytes sent", "seconds", "waited",
           "of");
    for (int i = 0; rt->traffic && i < rt->program->ncollectives; i++) {
        const RtCollective *c = &rt->program->collectives[i];
        const RtTraffic *t = &rt->traffic[i];
        if (!t->calls) /* of a program that has not run, as that which predicts */
            continue;
        char *axes = rt_axes_text(rt, c->naxes, c->axis);
        printf("%-14s %-10s %8lld %14lld %10s %10s  %s (%s; %s)\n", name_of_kind(c->kind), axes, (long long)t->calls,
               (long long)t->sent_bytes, seconds_text(t->seconds).text, seconds_text(t->waited).text, c->name, c->where,
               c->cause);
        free(axes);
    }
}
