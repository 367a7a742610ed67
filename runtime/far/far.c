/* far.c -- see far.h. */
#include "far.h"

#include <math.h>

void *rt_far_address(const Rt *rt, int64_t offset) { return rt->arena + offset; }

RtFarTraffic rt_far_traffic(const Rt *rt)
{
    const struct RtFar *far = rt->far;
    return far ? (RtFarTraffic){ .moved = far->moved, .waited = far->disk ? far->waited : NAN }
               : (RtFarTraffic){ .moved = -1 };
}

void rt_far_note(const Rt *rt, RtFarTraffic steps, double seconds)
{
    const struct RtFar *far = rt->far;
    if (!far || steps.moved <= 0)
        return;
    if (far->disk)
        rt_note("offloaded: %s from and to disk, for which the computation waited %.2f s of the %.2f s of steps",
                rt_bytes_text((double)steps.moved).text, steps.waited, seconds);
    else
        rt_note("offloaded: %s from and to the host", rt_bytes_text((double)steps.moved).text);
}
