/* saves.c -- the saves of a run: their beginning, their messages, and how long training stands still for them. */
#include "train.h"

static void note_saved(RtRun *run)
{
    const char *kept = rt_saving_kept(run->saving);
    run->saved_at = rt_saving_step(run->saving);
    rt_watched_tell(run);
    rt_note("saved step %lld to %s", (long long)run->saved_at, run->options.save);
    if (kept && *kept)
        rt_note("kept as %s", kept);
    else if (!kept)
        rt_note("note: step %lld is not kept: a file that is not this run's has the name of it",
                (long long)run->saved_at);
    if (rt_saving_best(run->saving))
        rt_note("kept as %s, the lowest loss of an evaluation: %.6f", rt_saving_best(run->saving),
                run->place.best_loss);
}

void rt_saves_open(RtRun *run)
{
    const RtOptions *o = &run->options;
    const int files = o->given.save_files ? (int)o->save_files : run->rt.ranks;
    if (o->save)
        run->saving = rt_saving_open(o->save, &run->rt, &run->lock,
                                     (o->given.save_every || o->keep_best) && !o->save_wait, files);
}

void rt_saves_advance(RtRun *run, bool wait)
{
    const double begin = rt_seconds();
    if (!run->saving || !rt_saving_is_under_way(run->saving))
        return;
    if (rt_saving_advance(run->saving, wait))
        note_saved(run);
    run->save_s += rt_seconds() - begin;
}

void rt_saves_begin(RtRun *run, bool is_periodic, bool is_best)
{
    const RtNames names = { is_periodic && run->keep.count ? &run->keep : NULL, is_best ? run->best_name : NULL };
    rt_saves_advance(run, true);
    const double begin = rt_seconds();
    rt_finish_update(run);
    const bool is_beside = rt_saving_start(run->saving, &run->place, names, true);
    run->save_s += rt_seconds() - begin;
    if (!is_beside)
        rt_saves_advance(run, true);
}

void rt_saves_end(RtRun *run)
{
    rt_saves_advance(run, true);
    if (run->saved_at == run->place.step)
        return;
    rt_finish_update(run);
    rt_saving_start(run->saving, &run->place, (RtNames){ 0 }, false);
    rt_saves_advance(run, true);
}
