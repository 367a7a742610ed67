/* trial.c -- see trial.h. */
#include "trial.h"

#include "tier.h"

#include <math.h>

Module *lower_silently(Run *own, Run *run, const Options *options, Settings *settings)
{
    *own = (Run){ .options = options, .source = run->source, .is_trial = true };
    own->diags = (Diags){ .arena = &own->arena, .source = &own->source, .out = open_discarding() };
    Module *m = lower_source(own, 0, settings);
    own->diags.out = stderr;
    return m;
}

static double seconds_on(const Machine *machine, const Report *r)
{
    if (!machine || (r->far && isnan(machine_tier(machine, far_tier(r->m)))))
        return NAN;
    const StepCost cost = step_cost(r->m, &r->classes, &r->run->arena);
    return cost.unscheduled ? NAN : step_time(&cost, machine, &r->run->arena).seconds;
}

Remedy remedy_without_options(const RemedyQuestion *question, const Report *r)
{
    Remedy made = { .bytes = question->is_of_arena ? (double)r->memory.arena : bytes_needed(r),
                    .seconds = seconds_on(question->machine, r),
                    .moved = r->fetched + r->offloaded };
    for (int i = 0; i < N_WORKS; i++)
        made.work += r->work[i];
    for (int i = 0; i < r->nrows; i++)
        made.moved += r->row[i].sent;
    made.fits = made.bytes <= question->room;
    return made;
}

bool try_options(Run *run, const RemedyQuestion *question, const Options *options, Remedy *made)
{
    Run own;
    Module *m = lower_silently(&own, run, options, NULL);
    const bool good = m && run_passes(m, &(PassOptions){ .unchecked = true });
    if (good) {
        const Report report = make_report(&own, m);
        *made = remedy_without_options(question, &report);
    }
    if (m)
        free_module(m);
    arena_free(&own.arena);
    return good;
}
