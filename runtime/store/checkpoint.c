/* checkpoint.c -- restores a run; docs/trainer.md, section Checkpoints, specifies the contents of the file, which
 * save.c writes. */
#include "checkpoint.h"

#include "checksum.h"
#include "convert.h"
#include "mesh/agree.h"
#include "mesh/comm.h"
#include "not_finite.h"
#include "weights.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

enum { PART = 1 << 16 }; /* elements copied at a time */

static const int64_t MOST_SEQUENCES = (int64_t)1 << 53; /* a bound that no run reaches, exact in doubles */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

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

static bool is_state(const char *name) { return !strncmp(name, "optimizer.", strlen("optimizer.")); }

/* Checks that every tensor of the file is used. */
static void check_known(const RtSafetensors *file, const RtProgram *program, const RtView *views, int count,
                        bool weights_only)
{
    const char **names = rt_allocate(count, sizeof *names);
    for (int i = 0; i < count; i++)
        names[i] = views[i].name;
    qsort(names, (size_t)count, sizeof *names, rt_compare_texts);
    for (int i = 0; i < file->count; i++)
        if (!(weights_only && is_state(file->tensors[i].name)) &&
            !bsearch(&file->tensors[i].name, names, (size_t)count, sizeof *names, rt_compare_texts))
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
        rt_widen(is_bf16, stored->data + 2 * (range.whole + first), count, (char *)part);
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

/* "tensor 'wte' has a wrong checksum"; `key`: its name in the metadata.  NULL: it has not. */
static char *changed_text(const char *what, const char *key, const char *saved, const char *found)
{
    return saved && strcmp(saved, found)
               ? rt_text("%s has a wrong checksum; the file is damaged: load another checkpoint, or copy it "
                         "again (if it was changed on purpose, leave '%s' out of its __metadata__)",
                         what, key)
               : NULL;
}

/* The first tensor that is not as it was saved; NULL: none.  Each rank checks an equal part of every tensor,
 * independent of its own part, so that each byte is read once. */
static char *find_changed(const RtSafetensors *file, Rt *rt, uint64_t *not_finite)
{
    uint64_t *sums = rt_allocate(2 * (int64_t)file->count, sizeof *sums);
    char *changed = NULL;
    for (int i = 0; i < file->count; i++) {
        const RtStored *stored = &file->tensors[i];
        int64_t count = 1;
        for (int d = 0; d < stored->rank; d++)
            count *= stored->size[d];
        int64_t bytes = stored->end - stored->begin, width = count ? bytes / count : 0;
        int64_t each = (count + rt->ranks - 1) / rt->ranks, first = least(each * rt->rank, count);
        if (width == 2 || width == 4)
            sums[i] = rt_checksum(stored->data + width * first, (int)width, first, least(each, count - first));
        sums[file->count + i] = rt_count_not_finite(stored, first, least(each, count - first));
    }
    rt_comm_add(rt, sums, 2 * file->count);
    for (int i = 0; i < file->count && !changed; i++) {
        char *key = rt_text("checksum.%s", file->tensors[i].name);
        char *found = rt_text("%016llx", (unsigned long long)sums[i]),
             *what = rt_text("tensor '%s'", file->tensors[i].name);
        changed = changed_text(what, key, rt_safetensors_metadata(file, key), found);
        free(what);
        free(found);
        free(key);
    }
    memcpy(not_finite, sums + file->count, (size_t)file->count * sizeof *sums);
    free(sums);
    return changed;
}

static void check_sums(const RtSafetensors *file, Rt *rt)
{
    uint64_t *not_finite = rt_allocate(file->count, sizeof *not_finite);
    const char *changed = find_changed(file, rt, not_finite);
    if (changed)
        rt_fail("%s %s: %s", file->option, file->path, changed);
    rt_note_not_finite(file, not_finite);
    free(not_finite);
}

/* What --keep-best and --patience know of the run that wrote it. */
static void read_best(const RtSafetensors *file, RtPlace *place)
{
    const char *loss = rt_safetensors_metadata(file, "best_loss");
    char *end = NULL;
    if (!rt_safetensors_metadata(file, "best_step"))
        return;
    place->best_loss = loss ? strtod(loss, &end) : NAN;
    if (!loss || !*loss || *end || !isfinite(place->best_loss))
        rt_fail("--load %s: its __metadata__ say '%s' of best_loss, where a number is needed; the file is damaged or "
                "not from this trainer",
                file->path, loss ? loss : "nothing");
    place->best_step = number_in(file, "best_step", INT32_MAX);
    place->not_better = number_in(file, "evaluations_since_best", INT32_MAX);
}

static const char *text_in(const RtSafetensors *file, const char *key)
{
    const char *text = rt_safetensors_metadata(file, key);
    return text ? text : "";
}

/* The progress of the run is not as it was saved; NULL: it is. */
static char *changed_place(const RtSafetensors *file)
{
    char *found = rt_place_checksum(text_in(file, "step"), text_in(file, "seed"), text_in(file, "position"),
                                    text_in(file, "order"), text_in(file, "sequences"));
    char *changed = changed_text("the progress of the run (step, seed, position, order, sequences)", "checksum",
                                 rt_safetensors_metadata(file, "checksum"), found);
    free(found);
    return changed;
}

static void check_place(const RtSafetensors *file)
{
    const char *changed = changed_place(file);
    if (changed)
        rt_fail("--load %s: %s", file->path, changed);
}

/* "optimizer.m.wte", and not the mean of weights or a number of the run. */
static bool is_of_optimizer(const char *name)
{
    const size_t prefix = strlen("optimizer.");
    return !strncmp(name, "optimizer.", prefix) && strncmp(name + prefix, "ema.", 4) && strchr(name + prefix, '.');
}

/* State of another optimizer fits if it has the same names, as the `m` of sgd and of lion has, which means other
 * things. */
static void note_other_optimizer(const RtSafetensors *file, const RtProgram *program, const RtView *views, int count)
{
    const char *was = rt_safetensors_metadata(file, "optimizer");
    if (!was || !program->optimizer || !strcmp(was, program->optimizer))
        return;
    int i = 0;
    while (i < count && !is_of_optimizer(views[i].name))
        i++;
    if (i < count)
        rt_note("note: --load %s: the optimizer was %s, now it is %s, and takes the tensors 'optimizer.*' for its own; "
                "with --weights-only it begins anew",
                file->path, was, program->optimizer);
}

/* Before it is mapped. */
static char *size_fault(const char *path)
{
    struct stat info;
    if (stat(path, &info))
        return rt_text("it cannot be opened: %s", strerror(errno));
    return info.st_size == 0 ? rt_text("the file is empty") : NULL;
}

/* The part of the check for which all ranks need the file. */
static char *content_fault(const RtSafetensors *file, Rt *rt)
{
    uint64_t *not_finite = rt_allocate(file->count, sizeof *not_finite);
    char *changed = find_changed(file, rt, not_finite);
    changed = changed ? changed : changed_place(file);
    if (!changed)
        rt_note_not_finite(file, not_finite);
    free(not_finite);
    return changed;
}

char *rt_checkpoint_fault(const char *path, Rt *rt)
{
    RtSafetensors file = { 0 };
    char *fault = size_fault(path);
    if (!fault)
        file = rt_weights_look(path, "--resume");
    if (file.fault)
        fault = rt_text("%s", file.fault);
    if (rt_comm_max(rt, fault ? 1 : 0) <= 0)
        fault = content_fault(&file, rt);
    else if (!fault)
        fault = rt_text("another rank cannot read it");
    if (file.map)
        rt_weights_close(&file);
    return fault;
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

/* The first step of a new run initialises the mean of weights, and counts from 0.  A resumed run has no first step,
 * so tensors that the file lacks get the values of after it. */
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

static void agree_on(Rt *rt, const RtSafetensors *file)
{
    rt_agree_on_file(rt, file->option, file->path, file->shard_files ? "index" : "safetensors", file->map, file->bytes);
    for (const RtSafetensors *each = file->shard_file; each < file->shard_file + file->shard_files; each++)
        rt_agree_on_file(rt, each->option, each->path, "safetensors", each->map, each->bytes);
}

bool rt_checkpoint_load(const char *path, Rt *rt, RtLoading how, RtPlace *place)
{
    const RtProgram *program = rt->program;
    RtSafetensors file = rt_weights_open(path, "--load");
    agree_on(rt, &file);
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
    if (!how.is_checked)
        check_sums(&file, rt);
    if (!weights_only) {
        const char *order = rt_safetensors_metadata(&file, "order");
        *place = (RtPlace){ .step = number_in(&file, "step", INT32_MAX),
                            .position = number_in(&file, "position", MOST_SEQUENCES),
                            .sequences = number_in(&file, "sequences", MOST_SEQUENCES),
                            .seed = (uint32_t)number_in(&file, "seed", UINT32_MAX),
                            .shuffled = !order || strcmp(order, "file") };
        strncpy(place->weights, text_in(&file, "weights"), sizeof place->weights - 1);
        read_best(&file, place);
        check_place(&file);
        note_other_optimizer(&file, program, views, count);
        start_missing_state(&file, rt, views, count, place->step, part);
    }
    free(part);
    rt_views_free(views, count);
    rt_weights_close(&file);
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
    qsort(names, (size_t)own, sizeof *names, rt_compare_texts);
    for (int i = 0; i < file->count; i++)
        if (!is_state(file->tensors[i].name) &&
            !bsearch(&file->tensors[i].name, names, (size_t)own, sizeof *names, rt_compare_texts))
            rt_fail("--load-part %s=%s: tensor '%s' is not one of this instance: model '%s' has no '%s.%s'", instance,
                    file->path, file->tensors[i].name, program->name, instance, file->tensors[i].name);
    free(names);
}

void rt_checkpoint_load_part(const char *instance, const char *path, Rt *rt)
{
    RtSafetensors file = rt_weights_open(path, "--load-part");
    agree_on(rt, &file);
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
    rt_weights_close(&file);
}
