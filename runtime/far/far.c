/* far.c -- see far.h. */
#include "far.h"

void *rt_far_address(const Rt *rt, int64_t offset) { return rt->arena + offset; }

void rt_far_note(const Rt *rt)
{
    const struct RtFar *far = rt->far;
    if (far && far->disk && far->moved)
        rt_note("offloaded: %s from and to disk, for which the computation waited %.2f s",
                rt_bytes_text((double)far->moved).text, far->waited);
}
