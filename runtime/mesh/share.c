/* share.c -- the share of its machine that a rank may use.
 *
 * Ranks of one machine that may run on the same processors divide them, and so those that are below the same cgroup
 * divide what it grants.  Ranks with processors or cgroups of their own, as a batch system gives them, have them whole.
 */
#include "comm.h"
#include "system_limits.h"

#include <math.h>
#include <stdlib.h>

static bool has_processor(const RtLimits *limits, int number)
{
    return limits->processors[number / 64] >> number % 64 & 1;
}

static bool is_below(const RtLimits *limits, const RtGroupLimit *group)
{
    for (const RtGroupLimit *own = limits->group; own < limits->group + limits->groups; own++)
        if (own->device == group->device && own->inode == group->inode)
            return true;
    return false;
}

/* Each processor is divided among the ranks that may run on it. */
static double processors_of(const RtLimits *own, const RtLimits *all, int ranks)
{
    double processors = 0;
    for (int number = 0; number < RT_MOST_PROCESSORS; number++) {
        int users = 0;
        for (int q = 0; q < ranks && has_processor(own, number); q++)
            users += all[q].machine == own->machine && has_processor(&all[q], number);
        processors += users ? 1.0 / users : 0;
    }
    return processors;
}

static RtShareOfMachine share_of(const RtLimits *own, const RtLimits *all, int ranks)
{
    int neighbours = 0;
    for (int q = 0; q < ranks; q++)
        neighbours += all[q].machine == own->machine;
    RtShareOfMachine share = { .processors = processors_of(own, all, ranks),
                               .memory = fmin(own->machine_memory / neighbours, own->process_memory) };
    for (const RtGroupLimit *group = own->group; group < own->group + own->groups; group++) {
        int users = 0;
        for (int q = 0; q < ranks; q++)
            users += all[q].machine == own->machine && is_below(&all[q], group);
        share.processors = fmin(share.processors, group->processors / users);
        share.memory = fmin(share.memory, group->memory / users);
    }
    return share;
}

void rt_share_machine(Rt *rt)
{
    const RtLimits own = rt_limits();
    RtLimits *all = rt_allocate(rt->ranks, sizeof *all);
    rt_comm_gather(rt, &own, sizeof own, (char *)all);
    for (int q = 0; q < rt->ranks; q++) /* a number of another process */
        all[q].groups = all[q].groups < 0 ? 0 : all[q].groups < RT_MOST_GROUPS ? all[q].groups : RT_MOST_GROUPS;
    rt->share = share_of(&own, all, rt->ranks);
    free(all);
}
