/* replay.c -- steps that run twice from one state, so that a bit that flips in one of the runs is noticed: in memory,
 * in a processor or in a message.
 *
 * State that outlives a step is copied before it, and put back before it runs again.  Sums of small blocks of all
 * tensors are compared between runs; ranks accept a run if each has the sums that it had in one earlier run. */
#include "device.h"
#include "mesh/comm.h"
#include "store/checksum.h"
#include "store/snapshot.h"
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, PART = 1 << 16 }; /* elements of a sum; that are read at a time */
enum { RESULTS = 2 };                /* numbers of a step: loss, norm of the gradient */

struct RtReplay {
    RtView *views;
    int count;
    RtSnapshot state; /* before the step */
    int64_t blocks;   /* of all tensors, and one for each result */
    uint64_t *sums;   /* of each run, one after the other */
    char *part;
};

static const char *const results[RESULTS] = { "loss", "norm of the gradient" };

static bool is_held(const Rt *rt, const RtView *view) { return view->is_held; }

static int64_t elements_of(const RtView *view)
{
    int64_t count = view->is_held;
    for (int d = 0; d < view->rank; d++)
        count *= view->size[d];
    return count;
}

static int64_t blocks_of(const RtView *view) { return (elements_of(view) + BLOCK - 1) / BLOCK; }

/* --- Start and end ------------------------------------------------------------------------------ */

static int most_runs(const RtOptions *options) { return 2 + (int)options->replay_retries; }

static _Noreturn void refuse(const RtOptions *options, const char *why)
{
    rt_fail("--replay %lld: %s; leave --replay out", (long long)options->replay, why);
}

static void allocate(RtRun *run, struct RtReplay *r)
{
    Rt *rt = &run->rt;
    const int64_t bytes = most_runs(&run->options) * r->blocks * (int64_t)sizeof *r->sums;
    r->state = rt_snapshot_open(rt, r->views, r->count, is_held);
    r->sums = r->state.memory ? (uint64_t *)(void *)rt_copies_allocate(rt, bytes) : NULL;
    if (rt_comm_max(rt, r->sums ? 0 : 1) > 0)
        refuse(&run->options,
               rt_text("it takes a copy of what outlives a step, and sums of it, of %s on this rank, and there is not "
                       "so much memory on each",
                       rt_bytes_text((double)(r->state.bytes + bytes)).text));
}

void rt_replay_open(RtRun *run)
{
    Rt *rt = &run->rt;
    if (!run->options.given.replay)
        return;
    if (rt->far && rt->far->disk)
        refuse(&run->options, "the layout offloads to disk, and a copy of what is there would take the memory that "
                              "this saves");
    struct RtReplay *r = run->replay = rt_allocate(1, sizeof *r);
    r->views = rt_views(rt, &r->count);
    r->blocks = RESULTS;
    for (int i = 0; i < r->count; i++)
        r->blocks += blocks_of(&r->views[i]);
    r->part = rt_allocate(PART, 4);
    allocate(run, r);
}

void rt_replay_close(RtRun *run)
{
    struct RtReplay *r = run->replay;
    if (!r)
        return;
    rt_copies_free(&run->rt, (char *)r->sums);
    rt_snapshot_close(&r->state, &run->rt);
    rt_views_free(r->views, r->count);
    free(r->part);
    free(r);
}

/* --- Sums --------------------------------------------------------------------------------------- */

/* Of each block of a tensor, by position. */
static void sum_view(const struct RtReplay *r, const Rt *rt, const RtView *view, uint64_t *sums)
{
    const int64_t all = elements_of(view);
    char *window = rt_view_open(rt, view);
    for (int64_t first = 0; first < all; first += PART) {
        const int64_t count = all - first < PART ? all - first : PART;
        rt_view_read(view, window, first, count, r->part);
#pragma omp parallel for
        for (int64_t i = 0; i < count; i += BLOCK)
            sums[(first + i) / BLOCK] = rt_checksum(r->part + 4 * i, 4, i, count - i < BLOCK ? count - i : BLOCK);
    }
    rt_view_close(rt, view, window, false);
}

static void sum_all(const RtRun *run, uint64_t *sums)
{
    const struct RtReplay *r = run->replay;
    const RtFunction *f = &run->rt.program->step;
    const int64_t at[RESULTS] = { f->scalars.loss, f->scalars.grad_norm };
    for (int i = 0; i < RESULTS; i++) {
        const double value = rt_scalar(run, f, at[i]);
        memcpy(sums++, &value, sizeof value);
    }
    for (const RtView *view = r->views; view < r->views + r->count; sums += blocks_of(view), view++)
        if (view->is_held)
            sum_view(r, &run->rt, view, sums);
}

/* --- Differences -------------------------------------------------------------------------------- */

/* "[2, 64]": of the whole tensor, an element of this rank's part. */
static char *place_text(const RtView *view, int64_t element)
{
    int64_t index[RT_MAX_RANK];
    for (int d = view->rank - 1; d >= 0; d--) {
        index[d] = rt_position(view->part[d], element % view->size[d]);
        element /= view->size[d];
    }
    char *text = rt_text("[");
    for (int d = 0; d < view->rank; d++)
        rt_append(&text, "%s%lld", d ? ", " : "", (long long)index[d]);
    rt_append(&text, "]");
    return text;
}

/* The first difference, or NULL; owned by the caller. */
static char *difference(const struct RtReplay *r, const uint64_t *a, const uint64_t *b)
{
    for (int i = 0; i < RESULTS; i++, a++, b++)
        if (*a != *b)
            return rt_text("the %s", results[i]);
    for (const RtView *view = r->views; view < r->views + r->count; a += blocks_of(view), b += blocks_of(view), view++)
        for (int64_t i = 0; i < blocks_of(view); i++) {
            if (a[i] == b[i])
                continue;
            const int64_t left = elements_of(view) - BLOCK * i;
            char *place = place_text(view, BLOCK * i);
            char *text = rt_text("'%s' in the %lld elements from %s on", view->name,
                                 (long long)(left < BLOCK ? left : BLOCK), place);
            free(place);
            return text;
        }
    return NULL;
}

/* What the ranks say of it, "rank 3 (dp 1, tp 1): the loss; 2 of 4 ranks differ"; NULL: all have the same.  The same on
 * all ranks; `own`: does this rank differ first?  Owned by the caller. */
static char *differences(Rt *rt, const struct RtReplay *r, const uint64_t *a, const uint64_t *b, bool *own)
{
    enum { ROOM = 256 };
    char said[ROOM] = "", *text = NULL, *here = difference(r, a, b), *all = rt_allocate(rt->ranks, ROOM);
    int differing = 0;
    snprintf(said, sizeof said, "%s", here ? here : "");
    rt_comm_gather(rt, said, ROOM, all);
    for (int rank = 0; rank < rt->ranks; rank++) {
        if (!all[rank * ROOM])
            continue;
        rt_comm_clean(all + rank * ROOM, ROOM);
        if (differing++ > 0)
            continue;
        *own = rank == rt->rank;
        char *place = rt_comm_place(rt, rank);
        text = rt->ranks > 1 ? rt_text("%s: %s", place, all + rank * ROOM) : rt_text("%s", all);
        free(place);
    }
    if (text && rt->ranks > 1)
        rt_append(&text, "; %d of %d ranks differ", differing, rt->ranks);
    free(all);
    free(here);
    return text;
}

/* --- A step ------------------------------------------------------------------------------------- */

static void run_once(RtRun *run)
{
    rt_data_put(run->data, &run->rt);
    rt_set_scalars(run, &run->rt.program->step.scalars);
    rt_begin_step(run);
    rt_run(&run->rt, &run->rt.program->step);
    run->is_pending = run->rt.program->finish.run;
}

/* Has the last of `runs` the results of an earlier one?  Else *text is where it differs from the one before. */
static bool is_confirmed(RtRun *run, int runs, char **text, bool *own)
{
    const struct RtReplay *r = run->replay;
    const uint64_t *last = r->sums + (runs - 1) * r->blocks;
    for (int i = runs - 2; i >= 0; i--) {
        bool is_own = false;
        char *found = differences(&run->rt, r, last, r->sums + i * r->blocks, &is_own);
        if (!found)
            return true;
        if (!*text) {
            *text = rt_text("%s", found);
            *own = is_own;
        }
        free(found);
    }
    return false;
}

static void copy_state(RtRun *run)
{
    const RtSnapshot *state = &run->replay->state;
    rt_copy_start(&run->rt, state->count, state->span, state->memory, NULL);
    rt_copy_wait(&run->rt);
}

int rt_replay_step(RtRun *run)
{
    struct RtReplay *r = run->replay;
    const long long step = (long long)run->place.step + 1;
    if (!r || step % run->options.replay) {
        run_once(run);
        return 1;
    }
    char *text = NULL;
    bool own = false;
    rt_finish_update(run); /* what a step leaves is no part of the state */
    copy_state(run);
    for (int runs = 1; runs <= most_runs(&run->options); runs++) {
        run_once(run);
        rt_finish_update(run);
        sum_all(run, r->sums + (runs - 1) * r->blocks);
        if (is_confirmed(run, runs, &text, &own)) {
            if (text)
                rt_note("note: step %lld: two runs from one state have other results: %s; the same ones came again in "
                        "run %d, and count",
                        step, text, runs);
            free(text);
            return runs;
        }
        rt_copy_back(&run->rt, r->state.count, r->state.span, r->state.memory);
    }
    if (own)
        run->failure = rt_text("step %lld: of %d runs from one state, no two have the same results: %s; this machine, "
                               "or the one of that rank, may be faulty",
                               step, most_runs(&run->options), text);
    free(text);
    return 0;
}
