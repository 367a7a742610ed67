/* checkpoint.c -- saves and restores a run: what is in the file is the contract of docs/trainer.md, section
 * Checkpoints. */
#include "checkpoint.h"

#include "comm.h"
#include "convert.h"
#include "output.h"
#include "safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 16 }; /* elements that are copied at once */

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

static char *header_of(const RtProgram *program, const RtView *views, int count, const RtPlace *place, int64_t *bytes)
{
    char *step = rt_text("%lld", (long long)place->step), *position = rt_text("%lld", (long long)place->position);
    char *sequences = rt_text("%lld", (long long)place->sequences), *seed = rt_text("%u", place->seed);
    const char *metadata[] = { "format",    "mpc",     "model", program->name,
                               "step",      step,      "seed",  seed,
                               "position",  position,  "order", place->shuffled ? "shuffled" : "file",
                               "sequences", sequences, NULL };
    char *header = rt_safetensors_header(views, count, metadata, bytes);
    free(step);
    free(position);
    free(sequences);
    free(seed);
    return header;
}

/* Writes what this rank holds of a tensor whose first element is byte `begin` of the file. */
static void write_view(RtOutput *output, const Rt *rt, const RtView *view, int64_t begin, char *part)
{
    char *window = rt_view_open(rt, view);
    RtRanges ranges = rt_ranges(view);
    for (RtRange range; rt_next_range(&ranges, &range);) {
        rt_output_seek(output, begin + 4 * range.whole);
        for (int64_t first = 0; first < range.count; first += PART) {
            int64_t count = range.count - first < PART ? range.count - first : PART;
            rt_view_read(view, window, range.own + first, count, part);
            rt_output_write(output, part, 4 * count);
        }
    }
    rt_view_close(rt, view, window, false);
}

static void write_views(RtOutput *output, const Rt *rt, const RtView *views, int count, int64_t begin)
{
    char *part = rt_allocate(PART, 4);
    for (int i = 0; i < count; begin += 4 * views[i].count, i++)
        if (views[i].is_owner)
            write_view(output, rt, &views[i], begin, part);
    free(part);
}

void rt_checkpoint_save(const char *path, Rt *rt, const RtPlace *place)
{
    int count;
    RtView *views = rt_views(rt, &count);
    int64_t bytes;
    char *header = header_of(rt->program, views, count, place, &bytes);
    RtOutput output;
    if (rt->rank == 0) {
        output = rt_output_open(path, "--save");
        rt_output_write(&output, header, bytes);
    }
    rt_comm_barrier(rt);
    if (rt->rank > 0)
        output = rt_output_join(path, "--save");
    rt_comm_barrier(rt); /* who fails to write removes the file, which all have opened by now */
    write_views(&output, rt, views, count, bytes);
    rt_output_finish(&output);
    rt_comm_barrier(rt);
    if (rt->rank == 0)
        rt_output_commit(&output);
    else
        free(output.partial);
    rt_comm_barrier(rt); /* whoever goes on may rely on the file */
    free(header);
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
        rt_fail("--load %s: tensor '%s' is missing; give a checkpoint of model '%s' as it is now", file->path,
                view->name, program->name);
    if (stored->rank != view->rank || memcmp(stored->size, view->whole, (size_t)view->rank * sizeof *view->whole))
        rt_fail("--load %s: tensor '%s' is %s there and %s in model '%s'; give a checkpoint of this model, or compile "
                "the model with the sizes of the checkpoint",
                file->path, view->name, shape_text(stored->rank, stored->size), shape_text(view->rank, view->whole),
                program->name);
    if (!dtype_fits(view, stored->dtype))
        rt_fail("--load %s: tensor '%s' has dtype %s and must have %s; convert it first", file->path, view->name,
                stored->dtype,
                rt_view_file_type(view) == RT_I32 ? "I32"
                : view->is_state                  ? "F32"
                                                  : "F32, BF16 or F16");
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Every tensor of the file has a use. */
static void check_known(const RtSafetensors *file, const RtProgram *program, const RtView *views, int count)
{
    const char **names = rt_allocate(count, sizeof *names);
    for (int i = 0; i < count; i++)
        names[i] = views[i].name;
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int i = 0; i < file->count; i++)
        if (!bsearch(&file->tensors[i].name, names, (size_t)count, sizeof *names, compare_names))
            rt_fail("--load %s: tensor '%s' is not one of model '%s'; give a checkpoint of this model and optimizer",
                    file->path, file->tensors[i].name, program->name);
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

/* Does it hold weights and nothing of a run: as written by PyTorch, say? */
static bool is_weights_only(const RtSafetensors *file)
{
    for (int i = 0; i < file->count; i++)
        if (!strncmp(file->tensors[i].name, "optimizer.", strlen("optimizer.")))
            return false;
    return !rt_safetensors_metadata(file, "step");
}

bool rt_checkpoint_load(const char *path, const Rt *rt, RtPlace *place)
{
    const RtProgram *program = rt->program;
    RtSafetensors file = rt_safetensors_open(path, "--load");
    int count;
    RtView *views = rt_views(rt, &count);
    bool weights_only = is_weights_only(&file);
    float *part = rt_allocate(PART, sizeof *part);
    check_known(&file, program, views, count);
    for (int i = 0; i < count; i++) {
        if (weights_only && views[i].is_state)
            continue;
        const RtStored *stored = rt_safetensors_find(&file, views[i].name);
        check_fits(&file, program, &views[i], stored);
        load_view(rt, &views[i], stored, part);
    }
    if (!weights_only) {
        const char *order = rt_safetensors_metadata(&file, "order");
        *place = (RtPlace){ .step = number_in(&file, "step", INT32_MAX),
                            .position = number_in(&file, "position", INT64_MAX),
                            .sequences = number_in(&file, "sequences", INT64_MAX),
                            .seed = (uint32_t)number_in(&file, "seed", UINT32_MAX),
                            .shuffled = !order || strcmp(order, "file") };
    }
    free(part);
    rt_views_free(views, count);
    rt_safetensors_close(&file);
    return !weights_only;
}
