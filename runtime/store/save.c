/* save.c -- writes checkpoints; docs/trainer.md, section Checkpoints, specifies the contents of the file.
 *
 * A save goes through these stages, on all ranks alike; the last two are done by a thread each time:
 *
 *   COPYING    into memory of the host, until the next step changes what is copied
 *   WRITING    each rank its parts, to FILE.tmp
 *   REPLACING  the first rank: the header, which has the sums of all ranks, and the new name
 */
#include "save.h"

#include "background.h"
#include "checksum.h"
#include "far/far.h"
#include "mesh/comm.h"
#include "output.h"
#include "safetensors.h"
#include "snapshot.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 16 }; /* elements copied at a time */

typedef enum { IDLE, COPYING, WRITING, REPLACING } Stage;

struct RtSaving {
    Rt *rt;
    const char *path;
    RtLock *lock;
    RtView *views;
    int count;
    RtSnapshot copy; /* of what this rank writes; without memory: it writes from the arena */
    Stage stage;
    RtPlace place; /* of the last save, as the following */
    RtKeep *keep;
    char *kept;
    RtOutput output;
    uint64_t *sums, *elements; /* of each tensor: its checksum, and how many elements are written */
    char *part;
    RtBackground background;
};

int64_t rt_checkpoint_bytes(const Rt *rt)
{
    int count;
    RtView *views = rt_views(rt, &count);
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += 4 * views[i].count;
    rt_views_free(views, count);
    return bytes;
}

/* --- The header --------------------------------------------------------------------------------- */

/* Its length does not depend on the checksums. */
static char *header_of(const struct RtSaving *s, int64_t *bytes)
{
    enum { FIXED = 16, WEIGHTS = 2, OWNED = 5 };
    const RtPlace *place = &s->place;
    char *owned[OWNED] = { rt_text("%lld", (long long)place->step), rt_text("%u", place->seed),
                           rt_text("%lld", (long long)place->position), rt_text("%lld", (long long)place->sequences) };
    const char *order = place->shuffled ? "shuffled" : "file";
    owned[4] = rt_place_checksum(owned[0], owned[1], owned[2], order, owned[3]);
    const char *fixed[FIXED] = { "format",    "mpc",    "model",    s->rt->program->name,
                                 "step",      owned[0], "seed",     owned[1],
                                 "position",  owned[2], "order",    order,
                                 "sequences", owned[3], "checksum", owned[4] };
    const char **metadata = rt_allocate(FIXED + 2 * s->count + WEIGHTS + 1, sizeof *metadata);
    memcpy(metadata, fixed, sizeof fixed);
    for (int i = 0; i < s->count; i++) {
        metadata[FIXED + 2 * i] = rt_text("checksum.%s", s->views[i].name);
        metadata[FIXED + 2 * i + 1] = rt_text("%016llx", (unsigned long long)s->sums[i]);
    }
    if (*place->weights) {
        metadata[FIXED + 2 * s->count] = "weights";
        metadata[FIXED + 2 * s->count + 1] = place->weights;
    }
    char *header = rt_safetensors_header(s->views, s->count, metadata, bytes);
    for (int i = 0; i < 2 * s->count; i++)
        free((void *)(uintptr_t)metadata[FIXED + i]);
    for (int i = 0; i < OWNED; i++)
        free(owned[i]);
    free(metadata);
    return header;
}

static int64_t header_bytes(const struct RtSaving *s)
{
    int64_t bytes;
    free(header_of(s, &bytes));
    return bytes;
}

/* --- This rank's parts -------------------------------------------------------------------------- */

/* Offloaded to disk there is more than memory has room for. */
static bool is_on_disk(const Rt *rt, const RtView *view) { return rt_is_far(rt, view->offset) && rt->far->disk; }

static bool is_copied(const Rt *rt, const RtView *view) { return view->is_owner && !is_on_disk(rt, view); }

/* Writes this rank's part of tensor i, which begins at byte `begin` of the file; `window`: its bytes of the arena. */
static void write_view(struct RtSaving *s, int i, const char *window, int64_t begin)
{
    const RtView *view = &s->views[i];
    RtRanges ranges = rt_ranges(view);
    for (RtRange range; rt_next_range(&ranges, &range);) {
        rt_output_seek(&s->output, begin + 4 * range.whole);
        for (int64_t first = 0; first < range.count; first += PART) {
            int64_t count = range.count - first < PART ? range.count - first : PART;
            rt_view_read(view, window, range.own + first, count, s->part);
            s->sums[i] += rt_checksum(s->part, 4, range.whole + first, count);
            s->elements[i] += (uint64_t)count;
            rt_output_write(&s->output, s->part, 4 * count);
        }
    }
}

/* Those that are in the copy, or else the others: from the arena, or all of them if there is no copy. */
static void write_views(struct RtSaving *s, bool from_copy, bool has_copy)
{
    int64_t begin = header_bytes(s);
    for (int i = 0; i < s->count; begin += 4 * s->views[i].count, i++) {
        const RtView *view = &s->views[i];
        if (!view->is_owner || (has_copy && is_copied(s->rt, view)) != from_copy)
            continue;
        char *window = from_copy ? NULL : rt_view_open(s->rt, view);
        write_view(s, i, from_copy ? rt_snapshot_window(&s->copy, view) : window, begin);
        if (!from_copy)
            rt_view_close(s->rt, view, window, false);
    }
}

/* Parts are on disk before the header is. */
static void finish_part(struct RtSaving *s)
{
    if (s->rt->rank > 0)
        rt_output_finish(&s->output);
}

static void write_copy(void *of)
{
    struct RtSaving *s = of;
    write_views(s, true, true);
    finish_part(s);
}

/* --- The whole file ----------------------------------------------------------------------------- */

/* Ends the trainer unless the ranks have written each tensor whole.  A file with holes would replace a good one, and
 * its checksums are looked at only when it is loaded. */
static void check_complete(struct RtSaving *s)
{
    for (int i = 0; i < s->count; i++)
        if (s->elements[i] != (uint64_t)s->views[i].count) {
            rt_output_discard(&s->output);
            rt_fail("--save %s: the ranks have written %llu elements of tensor '%s', which has %lld, so nothing was "
                    "saved; this is a bug of the trainer: please report it with the model and its layout",
                    s->path, (unsigned long long)s->elements[i], s->views[i].name, (long long)s->views[i].count);
        }
}

/* Passes the lock to the file that replaces the old one; it then may get a second name. */
static void replace_file(void *of)
{
    struct RtSaving *s = of;
    int64_t bytes;
    char *header = header_of(s, &bytes);
    rt_output_seek(&s->output, 0);
    rt_output_write(&s->output, header, bytes);
    free(header);
    int file = fcntl(s->output.file, F_DUPFD_CLOEXEC, 0);
    rt_lock_next(s->lock, file);
    rt_output_replace(&s->output);
    if (s->output.error)
        return;
    rt_lock_pass(s->lock, file);
    if (s->keep)
        s->kept = rt_keep_add(s->keep, s->place.step);
}

/* --- Stages ------------------------------------------------------------------------------------- */

/* By a thread, or at once. */
static void run_job(struct RtSaving *s, void (*job)(void *of), bool beside)
{
    if (beside)
        rt_background_start(&s->background, job, s, "that writes checkpoints");
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
        rt_output_require(&s->output);
    }
    return rt_comm_max(s->rt, is_done ? 0 : 1) <= 0;
}

static void begin_replacing(struct RtSaving *s, bool beside)
{
    rt_comm_add(s->rt, s->sums, 2 * s->count);
    check_complete(s);
    if (s->rt->rank == 0)
        run_job(s, replace_file, beside);
    s->stage = REPLACING;
}

static void begin_writing(struct RtSaving *s)
{
    rt_copy_wait(s->rt);
    run_job(s, write_copy, true);
    s->stage = WRITING;
}

bool rt_saving_advance(RtSaving *s, bool wait)
{
    if (s->stage == COPYING)
        begin_writing(s);
    if (s->stage == WRITING && have_all_done(s, wait))
        begin_replacing(s, !wait);
    if (s->stage != REPLACING || !have_all_done(s, wait))
        return false;
    rt_output_leave(&s->output);
    s->stage = IDLE;
    return true;
}

static void open_output(struct RtSaving *s)
{
    if (s->rt->rank == 0) {
        s->output = rt_output_open(s->path, "--save");
        rt_lock_mark(&s->output);
    }
    rt_comm_barrier(s->rt);
    if (s->rt->rank > 0)
        s->output = rt_output_join(s->path, "--save");
    rt_comm_barrier(s->rt); /* a rank that fails to write removes the file; all have opened it by now */
}

bool rt_saving_start(RtSaving *s, const RtPlace *place, RtKeep *keep, bool beside)
{
    const bool copies = beside && s->copy.memory;
    s->place = *place;
    s->keep = keep;
    free(s->kept);
    s->kept = NULL;
    memset(s->sums, 0, 2 * (size_t)s->count * sizeof *s->sums);
    open_output(s);
    if (copies)
        rt_copy_start(s->rt, s->copy.count, s->copy.span, s->copy.memory);
    write_views(s, false, copies);
    if (!copies)
        finish_part(s);
    s->stage = copies ? COPYING : WRITING;
    return copies;
}

bool rt_saving_is_under_way(const RtSaving *s) { return s->stage != IDLE; }

int64_t rt_saving_step(const RtSaving *s) { return s->place.step; }

const char *rt_saving_kept(const RtSaving *s) { return s->keep ? s->kept : ""; }

/* --- Start and end ------------------------------------------------------------------------------ */

/* On all ranks, or none. */
static void open_copy(struct RtSaving *s)
{
    Rt *rt = s->rt;
    s->copy = rt_snapshot_open(rt, s->views, s->count, is_copied);
    const double most = rt_comm_max(rt, (double)s->copy.bytes);
    if (rt_comm_max(rt, s->copy.memory ? 0 : 1) <= 0)
        return;
    rt_snapshot_close(&s->copy, rt);
    rt_note("note: training stops while a checkpoint of --save-every is written: to write it beside training takes "
            "memory for a copy, of %s on a rank, and there is not so much",
            rt_bytes_text(most).text);
}

RtSaving *rt_saving_open(const char *path, Rt *rt, RtLock *lock, bool beside)
{
    struct RtSaving *s = rt_allocate(1, sizeof *s);
    *s = (struct RtSaving){ .rt = rt, .path = path, .lock = lock };
    s->views = rt_views(rt, &s->count);
    s->sums = rt_allocate(2 * s->count, sizeof *s->sums);
    s->elements = s->sums + s->count;
    s->part = rt_allocate(PART, 4);
    if (beside)
        open_copy(s);
    return s;
}

void rt_saving_close(RtSaving *s)
{
    if (!s)
        return;
    rt_snapshot_close(&s->copy, s->rt);
    rt_views_free(s->views, s->count);
    free(s->sums);
    free(s->part);
    free(s->kept);
    free(s);
}
