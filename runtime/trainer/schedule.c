/* schedule.c -- the formulas of docs/language.md, section train: t is the step, u its position from the end of the
 * warmup (0) to the last step (1). */
#include "schedule.h"

#include <math.h>

static double wsd(const RtSchedule *s, int64_t t)
{
    int64_t begin = s->steps - s->decay;
    if (t < begin)
        return s->lr;
    return s->lr + (double)(t - begin) / (double)s->decay * (s->min_lr - s->lr);
}

double rt_schedule_lr(const RtSchedule *s, int64_t t)
{
    const double pi = 3.14159265358979323846;
    if (t < s->warmup)
        return s->lr * (double)(t + 1) / (double)s->warmup;
    if (s->kind == RT_CONSTANT_LR)
        return s->lr;
    if (t >= s->steps)
        return s->min_lr;
    if (s->kind == RT_WSD)
        return wsd(s, t);
    double u = (double)(t - s->warmup) / (double)(s->steps - s->warmup);
    if (s->kind == RT_LINEAR)
        return s->lr + u * (s->min_lr - s->lr);
    return s->min_lr + 0.5 * (s->lr - s->min_lr) * (1 + cos(pi * u));
}
