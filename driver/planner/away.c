/* away.c -- layouts that offload: to the host of a GPU, or to disk.
 *
 * What is offloaded is the same in all layouts of a search.  Only the layouts themselves are compiled with it.  Bounds
 * are those of programs that have all on the device, which compute and send as much; but in memory what is offloaded
 * counts as nothing, and a step takes at least as long as its transfers, which follow each other. */
#include "planner.h"

#include "tier.h"

#include <math.h>

bool read_away(Planner *p, const Module *m)
{
    const char *machine = p->run->options->machine;
    p->tier = far_tier(m);
    p->away = way_of(&m->train);
    p->offload = p->away.away ? way_text(p->arena, m, &p->away) : NULL;
    return !p->offload || !isnan(machine_tier(p->machine, p->tier)) ||
           run_failed(p->run, "--machine %s: it has no line '%s', the rate of what the layout offloads", machine,
                      Tier_words[p->tier]);
}

/* Tensors that are moved as a whole or in a few blocks may stay in part, a 256th of all does. */
#define MOVED_SHARE 0.95

/* Of reading and writing it. */
static double seconds_to_move(const Planner *p, double bytes)
{
    return bytes > 0 ? MOVED_SHARE * 2 * bytes / machine_tier(p->machine, p->tier) : 0;
}

double seconds_moved(const Planner *p, const PlanLayout *layout)
{
    double bytes[MAX_REPEATS + 1] = { 0 }, sum = 0;
    state_away(p, layout, bytes);
    for (int i = 0; i <= MAX_REPEATS; i++)
        sum += bytes[i];
    return seconds_to_move(p, sum / (double)copy_ranks(p, layout) - (double)p->away.keep);
}

void find_moved(const Planner *p, const PlanLayout *layout, OnceTime *once)
{
    double bytes[MAX_REPEATS + 1] = { 0 };
    if (!p->offload || p->away.forwards || p->away.keep)
        return;
    state_away(p, layout, bytes);
    for (int i = 0; i < MAX_REPEATS; i++)
        once->moved[i] = seconds_to_move(p, bytes[i]);
}
