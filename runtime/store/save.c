/* save.c -- writes checkpoints; docs/trainer.md, section Checkpoints, specifies the contents of the file.
 *
 * A save goes through these phases, on all ranks alike; the last two are done by a thread each time:
 *
 *   COPYING    into memory of the host, where the device does not leave that to the step that changes what is copied
 *   WRITING    each rank its parts, to FILE.tmp or to the files of an index
 *   REPLACING  the first rank: the header or the index, which has the sums of all ranks, and the new name
 */
#include "save.h"

#include "background.h"
#include "checksum.h"
#include "far/far.h"
#include "mesh/comm.h"
#include "save_files.h"
#include "shards.h"
#include "snapshot.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 20 }; /* elements written at a time */

typedef enum { IDLE, COPYING, WRITING, REPLACING } Phase;

struct RtSaving {
    Rt *rt;
    const char *path;
    RtLock *lock;
    RtSaveFiles files;
    RtSnapshot copy; /* of what this rank writes; without memory: it writes from the arena */
    Phase phase;
    RtPlace place; /* of the last save, as the following */
    RtNames names;
    char *kept;
    uint64_t *sums, *elements; /* of each tensor: its checksum, and how many elements are written */
    char *part;
    RtBackground background;
};

/* --- What it says of the run -------------------------------------------------------------------- */

static void add_pair(char ***next, char *key, char *value)
{
    *(*next)++ = key;
    *(*next)++ = value;
}

static void add_best(char ***next, const RtPlace *place)
{
    add_pair(next, rt_text("best_step"), rt_text("%lld", (long long)place->best_step));
    add_pair(next, rt_text("best_loss"), rt_text("%.17g", place->best_loss));
    add_pair(next, rt_text("evaluations_since_best"), rt_text("%lld", (long long)place->not_better));
}

/* Pairs of key and value, ended by NULL, whose lengths do not depend on the checksums; owned by the caller. */
static char **metadata_of(const struct RtSaving *s)
{
    enum { OF_RUN = 13 };
    const RtPlace *place = &s->place;
    const char *order = place->shuffled ? "shuffled" : "file";
    char **pair = rt_allocate(2 * (OF_RUN + (int64_t)s->files.count) + 1, sizeof *pair), **next = pair;
    char *step = rt_text("%lld", (long long)place->step), *seed = rt_text("%u", place->seed);
    char *position = rt_text("%lld", (long long)place->position);
    char *sequences = rt_text("%lld", (long long)place->sequences);
    add_pair(&next, rt_text("format"), rt_text("mpc"));
    add_pair(&next, rt_text("model"), rt_text("%s", s->rt->program->name));
    add_pair(&next, rt_text("step"), step);
    add_pair(&next, rt_text("seed"), seed);
    add_pair(&next, rt_text("position"), position);
    add_pair(&next, rt_text("order"), rt_text("%s", order));
    add_pair(&next, rt_text("sequences"), sequences);
    add_pair(&next, rt_text("checksum"), rt_place_checksum(step, seed, position, order, sequences));
    for (int i = 0; i < s->files.count; i++)
        add_pair(&next, rt_text("checksum.%s", s->files.views[i].name),
                 rt_text("%016llx", (unsigned long long)s->sums[i]));
    if (s->rt->program->optimizer)
        add_pair(&next, rt_text("optimizer"), rt_text("%s", s->rt->program->optimizer));
    if (*place->weights)
        add_pair(&next, rt_text("weights"), rt_text("%s", place->weights));
    if (place->best_step > 0)
        add_best(&next, place);
    return pair;
}

static void free_metadata(char **pair)
{
    for (char **text = pair; *text; text++)
        free(*text);
    free(pair);
}

/* --- This rank's parts -------------------------------------------------------------------------- */

/* Offloaded to disk there is more than memory has room for. */
static bool is_on_disk(const Rt *rt, const RtView *view) { return rt_is_far(rt, view->offset) && rt->far->disk; }

static bool is_copied(const Rt *rt, const RtView *view) { return view->is_owner && !is_on_disk(rt, view); }

/* Writes elements of a view that are consecutive in the file, at this byte of it; `window`: its bytes of the arena.
 * Returns their checksum. */
static uint64_t write_part(struct RtSaving *s, RtOutput *output, int64_t at, const RtView *view, const char *window,
                           RtRange part)
{
    const void *values = rt_view_as_in_file(view, window, part.own);
    if (!values) {
        rt_view_read(view, window, part.own, part.count, s->part);
        values = s->part;
    }
    rt_output_seek(output, at);
    rt_output_write(output, values, 4 * part.count);
    return rt_checksum(values, 4, part.whole, part.count);
}

/* From the copy, or from the arena while that has the same. */
static uint64_t write_part_of_copy(struct RtSaving *s, RtOutput *output, int64_t at, const RtView *view, RtRange part)
{
    uint64_t sum;
    do
        sum = write_part(s, output, at, view, rt_snapshot_hold(&s->copy, s->rt, view), part);
    while (!rt_snapshot_release(&s->copy, s->rt));
    return sum;
}

/* Writes this rank's part of tensor i, which begins at byte `begin` of the file; without a window: from the copy. */
static void write_view(struct RtSaving *s, RtOutput *output, int i, const char *window, int64_t begin)
{
    const RtView *view = &s->files.views[i];
    RtRanges ranges = rt_ranges(view);
    for (RtRange range; rt_next_range(&ranges, &range);)
        for (int64_t first = 0; first < range.count; first += PART) {
            const int64_t left = range.count - first, at = begin + 4 * (range.whole + first);
            const RtRange part = { range.own + first, range.whole + first, left < PART ? left : PART };
            s->sums[i] +=
                window ? write_part(s, output, at, view, window, part) : write_part_of_copy(s, output, at, view, part);
            s->elements[i] += (uint64_t)part.count;
        }
    if (!window)
        rt_snapshot_drop(&s->copy, view);
}

/* Those that are in the copy, or else the others: from the arena, or all of them if there is no copy. */
typedef struct {
    bool from_copy, has_copy;
} Which;

static bool is_among(const struct RtSaving *s, const RtView *view, Which which)
{
    return view->is_owner && (which.has_copy && is_copied(s->rt, view)) == which.from_copy;
}

static void write_file(struct RtSaving *s, int number, Which which)
{
    const RtShare *share = &s->files.share[number];
    RtOutput *output = NULL;
    int64_t begin = s->files.head[number];
    for (int i = share->first; i < share->first + share->count; begin += 4 * s->files.views[i].count, i++) {
        const RtView *view = &s->files.views[i];
        if (!is_among(s, view, which))
            continue;
        if (!output)
            output = rt_save_files_turn_to(&s->files, number);
        char *window = which.from_copy ? NULL : rt_view_open(s->rt, view);
        write_view(s, output, i, window, begin);
        if (!which.from_copy)
            rt_view_close(s->rt, view, window, false);
    }
    if (output)
        rt_save_files_turned(&s->files);
}

static void write_files(struct RtSaving *s, Which which)
{
    for (int i = 0; i < s->files.shares; i++)
        write_file(s, i, which);
}

static void write_copy(void *of)
{
    struct RtSaving *s = of;
    rt_save_files_reserve(&s->files);
    write_files(s, (Which){ .from_copy = true, .has_copy = true });
    rt_save_files_finish(&s->files);
}

/* --- The whole checkpoint ----------------------------------------------------------------------- */

/* Ends the trainer unless the ranks have written each tensor whole.  A file with holes would replace a good one, and
 * its checksums are looked at only when it is loaded. */
static void check_complete(struct RtSaving *s)
{
    const RtView *views = s->files.views;
    for (int i = 0; i < s->files.count; i++)
        if (s->elements[i] != (uint64_t)views[i].count) {
            rt_save_files_discard(&s->files);
            rt_fail("--save %s: the ranks have written %llu elements of tensor '%s', which has %lld, so nothing was "
                    "saved; this is a bug of the trainer: please report it with the model and its layout",
                    s->path, (unsigned long long)s->elements[i], views[i].name, (long long)views[i].count);
        }
}

/* Passes the lock to the file that replaces the old one; it then may get a second name.  Of several files the others
 * stay that the index of another name has. */
static void replace_file(void *of)
{
    struct RtSaving *s = of;
    RtOutput *output = &s->files.output;
    char **metadata = metadata_of(s);
    rt_save_files_complete(&s->files, (const char *const *)metadata);
    free_metadata(metadata);
    int file = fcntl(output->file, F_DUPFD_CLOEXEC, 0);
    rt_lock_next(s->lock, file);
    rt_output_replace(output);
    if (output->error)
        return;
    rt_lock_pass(s->lock, file);
    if (s->names.keep)
        s->kept = rt_keep_add(s->names.keep, s->place.step);
    if (s->names.best)
        rt_keep_best(s->path, s->names.best);
    if (s->files.has_index)
        rt_shards_sweep(output->target);
}

/* --- Phases ------------------------------------------------------------------------------------- */

/* By a thread, or at once. */
static void run_job(struct RtSaving *s, void (*job)(void *of), bool beside)
{
    if (beside)
        rt_background_start(&s->background, job, s, s->rt->threads / fmax(s->rt->share.processors, 1e-3),
                            "that writes checkpoints");
    else
        job(s);
}

/* Has each rank done its job?  One that could not do it says so now. */
static bool have_all_done(struct RtSaving *s, bool wait)
{
    if (wait)
        rt_background_join(&s->background);
    const bool is_done = rt_background_is_done(&s->background);
    if (is_done) {
        rt_background_join(&s->background);
        rt_save_files_require(&s->files);
    }
    return rt_comm_max(s->rt, is_done ? 0 : 1) <= 0;
}

static void begin_replacing(struct RtSaving *s, bool beside)
{
    rt_comm_add(s->rt, s->sums, 2 * s->files.count);
    check_complete(s);
    if (s->rt->rank == 0)
        run_job(s, replace_file, beside);
    s->phase = REPLACING;
}

static void begin_writing(struct RtSaving *s)
{
    run_job(s, write_copy, true);
    s->phase = WRITING;
}

bool rt_saving_advance(RtSaving *s, bool wait)
{
    if (s->phase == COPYING) {
        rt_copy_wait(s->rt);
        begin_writing(s);
    }
    if (s->phase == WRITING && have_all_done(s, wait))
        begin_replacing(s, !wait);
    if (s->phase != REPLACING || !have_all_done(s, wait))
        return false;
    rt_save_files_leave(&s->files);
    s->phase = IDLE;
    return true;
}

bool rt_saving_start(RtSaving *s, const RtPlace *place, RtNames names, bool beside)
{
    const bool copies = beside && s->copy.memory;
    s->place = *place;
    s->names = names;
    free(s->kept);
    s->kept = NULL;
    memset(s->sums, 0, 2 * (size_t)s->files.count * sizeof *s->sums);
    char **metadata = metadata_of(s);
    rt_save_files_begin(&s->files, place->step, (const char *const *)metadata);
    free_metadata(metadata);
    const bool is_readable = copies && rt_snapshot_start(&s->copy, s->rt, s->files.views, s->files.count, is_copied);
    if (!copies)
        rt_save_files_reserve(&s->files);
    write_files(s, (Which){ .has_copy = copies });
    if (!copies)
        rt_save_files_finish(&s->files);
    s->phase = copies ? COPYING : WRITING;
    if (is_readable)
        begin_writing(s);
    return copies;
}

bool rt_saving_is_under_way(const RtSaving *s) { return s->phase != IDLE; }

int64_t rt_saving_bytes(const RtSaving *s)
{
    int64_t bytes = 0;
    for (int i = 0; i < s->files.count; i++)
        bytes += 4 * s->files.views[i].count;
    return bytes;
}

int64_t rt_saving_most(const RtSaving *s) { return rt_save_files_most(&s->files); }

int64_t rt_saving_step(const RtSaving *s) { return s->place.step; }

const char *rt_saving_best(const RtSaving *s) { return s->names.best; }

const char *rt_saving_kept(const RtSaving *s) { return s->names.keep ? s->kept : ""; }

/* --- Start and end ------------------------------------------------------------------------------ */

/* On all ranks, or none. */
static void open_copy(struct RtSaving *s)
{
    Rt *rt = s->rt;
    s->copy = rt_snapshot_open(rt, s->files.views, s->files.count, is_copied);
    const double most = rt_comm_max(rt, (double)s->copy.bytes);
    if (rt_comm_max(rt, s->copy.memory ? 0 : 1) <= 0)
        return;
    rt_snapshot_close(&s->copy, rt);
    rt_note("note: training stops while a checkpoint is written: to write it beside training takes memory"
            " for a copy, of %s on a rank, and there is not so much",
            rt_bytes_text(most).text);
}

/* What a run that was killed has left beside an index. */
static void remove_rest(const struct RtSaving *s)
{
    if (!s->files.has_index || s->rt->rank > 0)
        return;
    char *target = rt_output_target(s->path);
    rt_shards_sweep(target);
    free(target);
}

RtSaving *rt_saving_open(const char *path, Rt *rt, RtLock *lock, bool beside, int files)
{
    struct RtSaving *s = rt_allocate(1, sizeof *s);
    *s = (struct RtSaving){ .rt = rt, .path = path, .lock = lock };
    s->files = rt_save_files_open(path, rt, files);
    s->sums = rt_allocate(2 * s->files.count, sizeof *s->sums);
    s->elements = s->sums + s->files.count;
    s->part = rt_allocate(PART, 4);
    remove_rest(s);
    if (beside)
        open_copy(s);
    return s;
}

void rt_saving_close(RtSaving *s)
{
    if (!s)
        return;
    rt_snapshot_close(&s->copy, s->rt);
    rt_save_files_close(&s->files);
    free(s->sums);
    free(s->part);
    free(s->kept);
    free(s);
}
