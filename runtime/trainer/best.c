/* best.c -- the lowest loss of an evaluation: --keep-best keeps its checkpoint, --patience ends a run after so many
 * evaluations without a lower one.  Both counts are in checkpoints, so a resumed run goes on counting.  All ranks have
 * the loss bit for bit, so they decide alike. */
#include "train.h"

#include "outputs.h"

#include <math.h>

#include <unistd.h>

static bool is_asked(const RtRun *run) { return run->options.keep_best || run->options.given.patience; }

/* A run that goes on replaces the best checkpoint that it wrote before; another file of that name is not its own. */
static void open_name(RtRun *run)
{
    const bool goes_on = run->place.best_step > 0;
    run->best_name = rt_keep_best_name(run->options.save);
    if (run->rt.rank > 0)
        return;
    rt_keep_check_links(run->options.save, "--keep-best");
    if (!goes_on && !run->options.overwrite)
        rt_outputs_keep(run->best_name, "--keep-best", "move it, give another --save");
    if (goes_on && access(run->best_name, F_OK))
        rt_note("note: the best checkpoint so far, of step %lld, is not here as %s: only a better one will be",
                (long long)run->place.best_step, run->best_name);
}

void rt_best_open(RtRun *run)
{
    if (!is_asked(run))
        run->place.best_step = 0; /* evaluations that nobody counts would make it wrong */
    if (run->options.keep_best)
        open_name(run);
}

bool rt_best_count(RtRun *run, double loss)
{
    RtPlace *place = &run->place;
    if (!is_asked(run) || !isfinite(loss))
        return false;
    const bool is_best = place->best_step == 0 || loss < place->best_loss;
    place->not_better = is_best ? 0 : place->not_better + 1;
    if (is_best) {
        place->best_step = place->step;
        place->best_loss = loss;
    }
    return is_best;
}

bool rt_best_is_out_of_patience(const RtRun *run)
{
    return run->options.given.patience && run->place.not_better >= run->options.patience;
}
