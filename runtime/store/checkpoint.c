/* checkpoint.c -- saves and restores a run; docs/trainer.md, section Checkpoints, specifies the contents of the
 * file. */
#include "checkpoint.h"

#include "checksum.h"
#include "convert.h"
#include "mesh/agree.h"
#include "mesh/comm.h"
#include "not_finite.h"
#include "output.h"
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 16 }; /* elements copied at a time */

static const int64_t MOST_SEQUENCES = (int64_t)1 << 53; /* a bound that no run reaches, exact in doubles */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- Saving --------------------------------------------------------------------------------- */

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

/* A checksum of the progress of the run: FNV-1a (64 bits) of these texts, since a wrong step would not be detected
 * otherwise. */
static char *place_checksum(const char *step, const char *seed, const char *position, const char *order,
                            const char *sequences)
{
    char *text = rt_text("step=%s seed=%s position=%s order=%s sequences=%s", step, seed, position, order, sequences);
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001B3u;
    free(text);
    return rt_text("%016llx", (unsigned long long)hash);
}

/* The length of the header does not depend on the checksums. */
static char *header_of(const RtProgram *program, const RtView *views, int count, const RtPlace *place,
                       const uint64_t *sums, int64_t *bytes)
{
    enum { FIXED = 16, WEIGHTS = 2, OWNED = 5 };
    char *owned[OWNED] = { rt_text("%lld", (long long)place->step), rt_text("%u", place->seed),
                           rt_text("%lld", (long long)place->position), rt_text("%lld", (long long)place->sequences) };
    const char *order = place->shuffled ? "shuffled" : "file";
    owned[4] = place_checksum(owned[0], owned[1], owned[2], order, owned[3]);
    const char *fixed[FIXED] = { "format",    "mpc",    "model",    program->name, "step",  owned[0],
                                 "seed",      owned[1], "position", owned[2],      "order", order,
                                 "sequences", owned[3], "checksum", owned[4] };
    const char **metadata = rt_allocate(FIXED + 2 * count + WEIGHTS + 1, sizeof *metadata);
    memcpy(metadata, fixed, sizeof fixed);
    for (int i = 0; i < count; i++) {
        metadata[FIXED + 2 * i] = rt_text("checksum.%s", views[i].name);
        metadata[FIXED + 2 * i + 1] = rt_text("%016llx", (unsigned long long)sums[i]);
    }
    if (*place->weights) {
        metadata[FIXED + 2 * count] = "weights";
        metadata[FIXED + 2 * count + 1] = place->weights;
    }
    char *header = rt_safetensors_header(views, count, metadata, bytes);
    for (int i = 0; i < 2 * count; i++)
        free((void *)(uintptr_t)metadata[FIXED + i]);
    for (int i = 0; i < OWNED; i++)
        free(owned[i]);
    free(metadata);
    return header;
}

/* What the ranks have written of a tensor. */
typedef struct {
    uint64_t checksum, elements;
} Written;

/* Writes this rank's part of a tensor that begins at byte `begin` of the file. */
static Written write_view(RtOutput *output, const Rt *rt, const RtView *view, int64_t begin, char *part)
{
    Written written = { 0 };
    char *window = rt_view_open(rt, view);
    RtRanges ranges = rt_ranges(view);
    for (RtRange range; rt_next_range(&ranges, &range);) {
        rt_output_seek(output, begin + 4 * range.whole);
        for (int64_t first = 0; first < range.count; first += PART) {
            int64_t count = range.count - first < PART ? range.count - first : PART;
            rt_view_read(view, window, range.own + first, count, part);
            written.checksum += rt_checksum(part, 4, range.whole + first, count);
            written.elements += (uint64_t)count;
            rt_output_write(output, part, 4 * count);
        }
    }
    rt_view_close(rt, view, window, false);
    return written;
}

/* Checksums and numbers of the elements that this rank writes, of each tensor. */
static void write_views(RtOutput *output, const Rt *rt, const RtView *views, int count, int64_t begin, uint64_t *sums,
                        uint64_t *elements)
{
    char *part = rt_allocate(PART, 4);
    for (int i = 0; i < count; begin += 4 * views[i].count, i++) {
        Written written = views[i].is_owner ? write_view(output, rt, &views[i], begin, part) : (Written){ 0 };
        sums[i] = written.checksum;
        elements[i] = written.elements;
    }
    free(part);
}

/* Ends the trainer unless the ranks have written each tensor whole.  A file with holes would replace a good one, and
 * its checksums are looked at only when it is loaded. */
static void check_complete(RtOutput *output, const RtView *views, int count, const uint64_t *elements)
{
    for (int i = 0; i < count; i++)
        if (elements[i] != (uint64_t)views[i].count) {
            rt_output_discard(output);
            rt_fail("--save %s: the ranks have written %llu elements of tensor '%s', which has %lld, so nothing was "
                    "saved; this is a bug of the trainer: please report it with the model and its layout",
                    output->path, (unsigned long long)elements[i], views[i].name, (long long)views[i].count);
        }
}

/* Adds these numbers of all ranks. */
static void add_up(Rt *rt, uint64_t *sums, int count)
{
    uint64_t *all = rt_allocate((int64_t)rt->ranks * count, sizeof *all);
    rt_comm_gather(rt, sums, count * (int64_t)sizeof *sums, (char *)all);
    memset(sums, 0, (size_t)count * sizeof *sums);
    for (int64_t i = 0; i < (int64_t)rt->ranks * count; i++)
        sums[i % count] += all[i];
    free(all);
}

/* Passes the lock to the file that replaces the old one. */
static void commit(RtOutput *output, RtLock *lock)
{
    int file = fcntl(output->file, F_DUPFD_CLOEXEC, 0);
    rt_lock_next(lock, file);
    rt_output_commit(output);
    rt_lock_pass(lock, file);
}

/* The header is written last, since checksums are known only then. */
void rt_checkpoint_save(const char *path, Rt *rt, const RtPlace *place, RtLock *lock)
{
    int count;
    RtView *views = rt_views(rt, &count);
    uint64_t *sums = rt_allocate(2 * count, sizeof *sums), *elements = sums + count;
    int64_t bytes;
    char *header = header_of(rt->program, views, count, place, sums, &bytes);
    RtOutput output;
    if (rt->rank == 0)
        output = rt_output_open(path, "--save");
    rt_comm_barrier(rt);
    if (rt->rank > 0)
        output = rt_output_join(path, "--save");
    rt_comm_barrier(rt); /* a rank that fails to write removes the file; all have opened it by now */
    write_views(&output, rt, views, count, bytes, sums, elements);
    add_up(rt, sums, 2 * count);
    check_complete(&output, views, count, elements);
    free(header);
    if (rt->rank == 0) {
        header = header_of(rt->program, views, count, place, sums, &bytes);
        rt_output_seek(&output, 0);
        rt_output_write(&output, header, bytes);
        free(header);
    } else {
        rt_output_finish(&output);
    }
    rt_comm_barrier(rt);
    if (rt->rank == 0)
        commit(&output, lock);
    else
        rt_output_leave(&output);
    rt_comm_barrier(rt); /* the file is complete for all ranks */
    free(sums);
    rt_views_free(views, count);
}

/* --- Loading -------------------------------------------------------------------------------- */

static char *shape_text(int rank, const int64_t *size)
{
    char *text = rt_text("[");
    for (int d = 0; d < rank; d++)
        rt_append(&text, "%s%lld", d ? ", " : "", (long long)size[d]);
    rt_append(&text, "]");
    return text;
}

static bool dtype_fits(const RtView *view, const char *dtype)
{
    if (rt_view_file_type(view) == RT_I32)
        return !strcmp(dtype, "I32");
    return !strcmp(dtype, "F32") || (!view->is_state && (!strcmp(dtype, "BF16") || !strcmp(dtype, "F16")));
}

static void check_fits(const RtSafetensors *file, const RtProgram *program, const RtView *view, const RtStored *stored)
{
    if (!stored)
        rt_fail("%s %s: tensor '%s' is missing; give a checkpoint of model '%s' as it is now, or --load-missing=init",
                file->option, file->path, view->name, program->name);
    if (stored->rank != view->rank || memcmp(stored->size, view->whole, (size_t)view->rank * sizeof *view->whole))
        rt_fail("%s %s: tensor '%s' is %s there and %s in model '%s'; give a checkpoint of this model, or compile "
                "the model with the sizes of the checkpoint",
                file->option, file->path, view->name, shape_text(stored->rank, stored->size),
                shape_text(view->rank, view->whole), program->name);
    if (!dtype_fits(view, stored->dtype))
        rt_fail("%s %s: tensor '%s' has dtype %s and must have %s; convert it first", file->option, file->path,
                view->name, stored->dtype,
                rt_view_file_type(view) == RT_I32 ? "I32"
                : view->is_state                  ? "F32"
                                                  : "F32, BF16 or F16");
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool is_state(const char *name) { return !strncmp(name, "optimizer.", strlen("optimizer.")); }

/* Checks that every tensor of the file is used. */
static void check_known(const RtSafetensors *file, const RtProgram *program, const RtView *views, int count,
                        bool weights_only)
{
    const char **names = rt_allocate(count, sizeof *names);
    for (int i = 0; i < count; i++)
        names[i] = views[i].name;
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int i = 0; i < file->count; i++)
        if (!(weights_only && is_state(file->tensors[i].name)) &&
            !bsearch(&file->tensors[i].name, names, (size_t)count, sizeof *names, compare_names))
            rt_fail("--load %s: tensor '%s' is not one of model '%s'; give a checkpoint of this model and optimizer%s",
                    file->path, file->tensors[i].name, program->name,
                    is_state(file->tensors[i].name) ? ", or --weights-only" : "");
    free(names);
}

static void load_range(const RtView *view, char *window, const RtStored *stored, RtRange range, float *part)
{
    if (!strcmp(stored->dtype, "F32") || !strcmp(stored->dtype, "I32")) {
        rt_view_write(view, window, range.own, range.count, stored->data + 4 * range.whole);
        return;
    }
    bool is_bf16 = !strcmp(stored->dtype, "BF16");
    for (int64_t first = 0; first < range.count; first += PART) {
        int64_t count = range.count - first < PART ? range.count - first : PART;
        for (int64_t i = 0; i < count; i++) {
            uint16_t bits;
            memcpy(&bits, stored->data + 2 * (range.whole + first + i), 2);
            part[i] = is_bf16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
        }
        rt_view_write(view, window, range.own + first, count, part);
    }
}

static void load_view(const Rt *rt, const RtView *view, const RtStored *stored, float *part)
{
    char *window = rt_view_open(rt, view);
    RtRanges ranges = rt_ranges(view);
    for (RtRange range; rt_next_range(&ranges, &range);)
        load_range(view, window, stored, range, part);
    rt_view_close(rt, view, window, true);
}

static int64_t number_in(const RtSafetensors *file, const char *key, int64_t highest)
{
    const char *text = rt_safetensors_metadata(file, key);
    char *end = NULL;
    errno = 0;
    long long number = text ? strtoll(text, &end, 10) : -1;
    if (!text || !*text || *end || errno || number < 0 || number > highest)
        rt_fail("--load %s: its __metadata__ say '%s' of %s, where a whole number up to %lld is needed; the file is "
                "damaged or not from this trainer",
                file->path, text ? text : "nothing", key, (long long)highest);
    return number;
}

/* Does it have only weights, without the state of a run (e.g. written by PyTorch)? */
static bool is_weights_only(const RtSafetensors *file)
{
    for (int i = 0; i < file->count; i++)
        if (is_state(file->tensors[i].name))
            return false;
    return !rt_safetensors_metadata(file, "step");
}

/* Parameters that the file lacks: a note, and an error where it has none at all. */
static void note_missing(const RtSafetensors *file, const RtProgram *program, const RtView *views, int count)
{
    const char *first = NULL;
    int missing = 0, parameters = 0;
    for (int i = 0; i < count; i++) {
        bool lacks = !views[i].is_state && !rt_safetensors_find(file, views[i].name);
        parameters += !views[i].is_state;
        missing += lacks;
        first = lacks && !first ? views[i].name : first;
    }
    if (parameters && missing == parameters)
        rt_fail("--load %s: it has no parameter of model '%s', '%s' for one; give a checkpoint of this model",
                file->path, program->name, first);
    if (missing)
        rt_note("note: %d of %d parameters are not in %s and start as in a new run: '%s'%s", missing, parameters,
                file->path, first, missing > 1 ? ", ..." : "");
}

static _Noreturn void refuse_changed(const RtSafetensors *file, const char *what, const char *key)
{
    rt_fail("%s %s: %s has a wrong checksum; the file is damaged: load another checkpoint, "
            "or copy it again (if it was changed on purpose, leave '%s' out of its __metadata__)",
            file->option, file->path, what, key);
}

/* Each rank checks an equal part of every tensor, independent of its own part, so that each byte is read once. */
static void check_sums(const RtSafetensors *file, Rt *rt)
{
    uint64_t *sums = rt_allocate(2 * (int64_t)file->count, sizeof *sums), *not_finite = sums + file->count;
    for (int i = 0; i < file->count; i++) {
        const RtStored *stored = &file->tensors[i];
        int64_t count = 1;
        for (int d = 0; d < stored->rank; d++)
            count *= stored->size[d];
        int64_t bytes = stored->end - stored->begin, width = count ? bytes / count : 0;
        int64_t each = (count + rt->ranks - 1) / rt->ranks, first = least(each * rt->rank, count);
        if (width == 2 || width == 4)
            sums[i] = rt_checksum(stored->data + width * first, (int)width, first, least(each, count - first));
        not_finite[i] = rt_count_not_finite(stored, first, least(each, count - first));
    }
    add_up(rt, sums, 2 * file->count);
    for (int i = 0; i < file->count; i++) {
        char *key = rt_text("checksum.%s", file->tensors[i].name);
        char *found = rt_text("%016llx", (unsigned long long)sums[i]),
             *what = rt_text("tensor '%s'", file->tensors[i].name);
        const char *saved = rt_safetensors_metadata(file, key);
        if (saved && strcmp(saved, found))
            refuse_changed(file, what, key);
        free(what);
        free(found);
        free(key);
    }
    rt_note_not_finite(file, not_finite);
    free(sums);
}

static const char *text_in(const RtSafetensors *file, const char *key)
{
    const char *text = rt_safetensors_metadata(file, key);
    return text ? text : "";
}

static void check_place(const RtSafetensors *file)
{
    const char *saved = rt_safetensors_metadata(file, "checksum");
    char *found = place_checksum(text_in(file, "step"), text_in(file, "seed"), text_in(file, "position"),
                                 text_in(file, "order"), text_in(file, "sequences"));
    if (saved && strcmp(saved, found))
        refuse_changed(file, "the progress of the run (step, seed, position, order, sequences)", "checksum");
    free(found);
}

static const RtView *view_named(const RtView *views, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(views[i].name, name))
            return &views[i];
    return NULL;
}

static void copy_view(const Rt *rt, const RtView *from, const RtView *to, float *part)
{
    RtRanges ranges = rt_ranges(from);
    char *source = rt_view_open(rt, from), *target = rt_view_open(rt, to);
    for (RtRange range; rt_next_range(&ranges, &range);)
        for (int64_t first = 0; first < range.count; first += PART) {
            int64_t count = range.count - first < PART ? range.count - first : PART;
            rt_view_read(from, source, range.own + first, count, part);
            rt_view_write(to, target, range.own + first, count, part);
        }
    rt_view_close(rt, from, source, false);
    rt_view_close(rt, to, target, true);
}

/* The first step of a new run makes the mean of weights begin as they do, and counts from 0.  A run that goes on has no
 * first step: there what the file lacks is set to what it would be. */
static void start_missing_state(const RtSafetensors *file, const Rt *rt, const RtView *views, int count, int64_t step,
                                float *part)
{
    static const char mean[] = "optimizer.ema.", applied[] = "optimizer.applied_steps";
    int32_t steps = (int32_t)step;
    for (int i = 0; i < count && step > 0; i++) {
        if (rt_safetensors_find(file, views[i].name))
            continue;
        if (!strncmp(views[i].name, mean, strlen(mean)))
            copy_view(rt, view_named(views, count, views[i].name + strlen(mean)), &views[i], part);
        if (!strcmp(views[i].name, applied) && views[i].is_held) {
            char *window = rt_view_open(rt, &views[i]);
            rt_view_write(&views[i], window, 0, 1, &steps);
            rt_view_close(rt, &views[i], window, true);
        }
    }
}

bool rt_checkpoint_load(const char *path, Rt *rt, RtLoading how, RtPlace *place)
{
    const RtProgram *program = rt->program;
    RtSafetensors file = rt_safetensors_open(path, "--load");
    rt_agree_on_file(rt, "--load", path, "safetensors", file.map, file.bytes);
    int count;
    RtView *views = rt_views(rt, &count);
    bool weights_only = how.weights_only || is_weights_only(&file);
    float *part = rt_allocate(PART, sizeof *part);
    check_known(&file, program, views, count, weights_only);
    if (how.init_missing)
        note_missing(&file, program, views, count);
    for (int i = 0; i < count; i++) {
        const RtStored *stored = rt_safetensors_find(&file, views[i].name);
        if ((weights_only && views[i].is_state) || (how.init_missing && !stored))
            continue;
        check_fits(&file, program, &views[i], stored);
        load_view(rt, &views[i], stored, part);
    }
    check_sums(&file, rt);
    if (!weights_only) {
        const char *order = rt_safetensors_metadata(&file, "order");
        *place = (RtPlace){ .step = number_in(&file, "step", INT32_MAX),
                            .position = number_in(&file, "position", MOST_SEQUENCES),
                            .sequences = number_in(&file, "sequences", MOST_SEQUENCES),
                            .seed = (uint32_t)number_in(&file, "seed", UINT32_MAX),
                            .shuffled = !order || strcmp(order, "file") };
        strncpy(place->weights, text_in(&file, "weights"), sizeof place->weights - 1);
        check_place(&file);
        start_missing_state(&file, rt, views, count, place->step, part);
    }
    free(part);
    rt_views_free(views, count);
    rt_safetensors_close(&file);
    return !weights_only;
}

/* --- A part of a model ---------------------------------------------------------------------- */

/* The name of a parameter within the instance; NULL: it is none of it. */
static const char *name_within(const char *instance, const RtView *view)
{
    const size_t length = strlen(instance);
    const bool is_within = !view->is_state && !strncmp(view->name, instance, length) && view->name[length] == '.';
    return is_within ? view->name + length + 1 : NULL;
}

/* Checks that the model has each parameter of the file in the instance, and the instance at all. */
static void check_part(const RtSafetensors *file, const RtProgram *program, const char *instance, const RtView *views,
                       int count)
{
    const char **names = rt_allocate(count, sizeof *names);
    int own = 0;
    for (int i = 0; i < count; i++)
        if (name_within(instance, &views[i]))
            names[own++] = name_within(instance, &views[i]);
    if (own == 0)
        rt_fail("--load-part %s=%s: model '%s' has no parameter '%s.*'; `mpc check --verbose` lists them", instance,
                file->path, program->name, instance);
    qsort(names, (size_t)own, sizeof *names, compare_names);
    for (int i = 0; i < file->count; i++)
        if (!is_state(file->tensors[i].name) &&
            !bsearch(&file->tensors[i].name, names, (size_t)own, sizeof *names, compare_names))
            rt_fail("--load-part %s=%s: tensor '%s' is not one of this instance: model '%s' has no '%s.%s'", instance,
                    file->path, file->tensors[i].name, program->name, instance, file->tensors[i].name);
    free(names);
}

void rt_checkpoint_load_part(const char *instance, const char *path, Rt *rt)
{
    RtSafetensors file = rt_safetensors_open(path, "--load-part");
    rt_agree_on_file(rt, "--load-part", path, "safetensors", file.map, file.bytes);
    int count;
    RtView *views = rt_views(rt, &count);
    float *part = rt_allocate(PART, sizeof *part);
    check_part(&file, rt->program, instance, views, count);
    for (int i = 0; i < count; i++) {
        const char *name = name_within(instance, &views[i]);
        const RtStored *stored = name ? rt_safetensors_find(&file, name) : NULL;
        if (!name)
            continue;
        if (!stored)
            rt_fail("--load-part %s=%s: the file has no tensor '%s', and model '%s' has '%s'", instance, path, name,
                    rt->program->name, views[i].name);
        check_fits(&file, rt->program, &views[i], stored);
        load_view(rt, &views[i], stored, part);
    }
    check_sums(&file, rt);
    free(part);
    rt_views_free(views, count);
    rt_safetensors_close(&file);
}
