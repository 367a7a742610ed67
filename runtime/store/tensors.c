/* tensors.c -- lists the tensors of a program under their full names, and copies their elements from and to the arena,
 * for any memory order. */
#include "tensors.h"

#include "convert.h"
#include "device.h"
#include "mesh/comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- Names ---------------------------------------------------------------------------------- */

/* The k-th '*' of the path becomes copy[k]. */
static char *full_name(const RtTensor *tensor, const int64_t *copy)
{
    int64_t first = tensor->first_copy, step = 1 + tensor->skipped_copies;
    char *path = tensor->state ? rt_text("optimizer.%s", tensor->state) : rt_text("%s", "");
    if (tensor->state && tensor->name && *tensor->name)
        rt_append(&path, ".");
    for (const char *c = tensor->name ? tensor->name : ""; *c; c++)
        if (*c == '*') {
            rt_append(&path, "%lld", (long long)(first + step * *copy++));
            first = 0;
            step = 1;
        } else
            rt_append(&path, "%c", *c);
    return path;
}

/* FNV-1a of 32 bits (G. Fowler, L. C. Noll, P. Vo; RFC 9923), of the name by which initial values are drawn. */
static uint32_t hash_of(const RtTensor *tensor, const int64_t *copy)
{
    RtTensor drawn = *tensor;
    drawn.name = tensor->like ? tensor->like : tensor->name;
    char *text = full_name(&drawn, copy);
    uint32_t hash = 2166136261u;
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    free(text);
    return hash;
}

static bool is_on(const RtTensor *tensor, int stage) { return tensor->stages >> stage & 1; }

/* How many ranks along an axis have the same part of the tensor, and which of them this one is; -1: it has none. */
static int place_among_equals(const Rt *rt, const RtTensor *tensor, int axis, int *equals)
{
    const int own = rt_coordinate(rt, axis);
    *equals = 1;
    for (int d = 0; d < tensor->rank; d++)
        for (int i = 0; i < tensor->split[d].count; i++)
            if (tensor->split[d].axis[i] == axis)
                return 0;
    *equals = rt->program->axes[axis].size;
    if (!tensor->stages || axis != tensor->stage_axis)
        return own;
    *equals = __builtin_popcountll(tensor->stages);
    return is_on(tensor, own) ? __builtin_popcountll(tensor->stages & ((1ULL << own) - 1)) : -1;
}

static bool falls_to(const Rt *rt, const RtTensor *tensor, int number)
{
    for (int axis = 0; axis < rt->program->naxes; axis++) {
        int equals;
        const int place = place_among_equals(rt, tensor, axis, &equals);
        if (place != number % equals)
            return false;
        number /= equals;
    }
    return true;
}

bool rt_view_falls_to(const Rt *rt, const RtView *view, int number)
{
    return view->is_held && falls_to(rt, view->tensor, number);
}

/* Has the rank this copy?  If so, *index is its index among those of the rank. */
static bool holds_copy(const Rt *rt, const RtTensor *tensor, int d, int64_t copy, int64_t *index)
{
    const RtPart part = rt_part(rt, tensor->split[d], tensor->padded[d]);
    *index = copy;
    if (tensor->split[d].count == 0)
        return true;
    *index -= part.first;
    return *index >= 0 && *index < part.jump_from;
}

static int64_t element_bytes(RtType type) { return type == RT_BOOL ? 1 : type == RT_F32 || type == RT_I32 ? 4 : 2; }

static RtView view_of(const Rt *rt, const RtTensor *tensor, const int64_t *copy)
{
    RtView view = { .name = full_name(tensor, copy),
                    .hash = hash_of(tensor, copy),
                    .tensor = tensor,
                    .is_state = tensor->state != NULL,
                    .type = tensor->type,
                    .rank = tensor->rank - tensor->copies,
                    .offset = rt_own_place(rt, tensor->offset),
                    .is_held = !tensor->stages || is_on(tensor, rt_coordinate(rt, tensor->stage_axis)),
                    .count = 1 };
    const int64_t element = element_bytes(tensor->type);
    for (int d = 0; d < tensor->copies; d++) {
        int64_t index;
        view.is_held &= holds_copy(rt, tensor, d, copy[d], &index);
        view.offset += view.is_held ? element * index * tensor->stride[d] : 0;
    }
    view.is_owner = rt_view_falls_to(rt, &view, 0);
    for (int d = 0; d < view.rank; d++) {
        int from = tensor->copies + d;
        const RtSplit *split = &tensor->split[from];
        view.whole[d] = tensor->size[from];
        view.part[d] = rt_part(rt, *split, tensor->padded[from]);
        view.size[d] = split->count ? rt_part_size(rt, *split, tensor->padded[from]) : view.whole[d];
        view.stride[d] = tensor->stride[from];
        view.count *= view.whole[d];
    }
    return view;
}

RtView rt_view_of_result(const Rt *rt, const RtFunction *f, const RtTensor *result)
{
    RtView view = view_of(rt, result, NULL);
    view.offset = rt_place_in(rt, f, result->offset);
    return view;
}

/* The next index into the first `rank` sizes, row by row; false after the last. */
static bool next_index(int rank, const int64_t *size, int64_t *index)
{
    for (int d = rank - 1; d >= 0; d--) {
        if (++index[d] < size[d])
            return true;
        index[d] = 0;
    }
    return false;
}

RtView *rt_views(const Rt *rt, int *count)
{
    const RtProgram *program = rt->program;
    *count = 0;
    for (const RtTensor *t = program->tensors; t < program->tensors + program->ntensors; t++) {
        int copies = 1;
        for (int d = 0; d < t->copies; d++)
            copies *= (int)t->size[d];
        *count += copies;
    }
    RtView *views = rt_allocate(*count, sizeof *views), *view = views;
    for (const RtTensor *t = program->tensors; t < program->tensors + program->ntensors; t++) {
        int64_t copy[RT_MAX_RANK] = { 0 };
        do
            *view++ = view_of(rt, t, copy);
        while (next_index(t->copies, t->size, copy));
    }
    return views;
}

void rt_views_free(RtView *views, int count)
{
    for (int i = 0; i < count; i++)
        free(views[i].name);
    free(views);
}

/* --- This rank's part of the whole ------------------------------------------------------------ */

/* Does the rank have the whole dim?  A part may have the size of the whole if the dim is padded. */
static bool is_whole(const RtView *view, int d)
{
    return view->size[d] == view->whole[d] && view->part[d].first == 0 && view->part[d].jump == 0;
}

RtRanges rt_ranges(const RtView *view)
{
    RtRanges ranges = { .view = view, .split = view->rank - 1, .inner = 1 };
    while (ranges.split >= 0 && is_whole(view, ranges.split))
        ranges.inner *= view->whole[ranges.split--];
    return ranges;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The number of elements of a part from this one on, up to a jump. */
static int64_t run_of_part(const RtPart *part, int64_t own)
{
    const int64_t j = part->begin + own, rest = part->period ? j % part->period : j;
    return rest < part->jump_from ? part->jump_from - rest : part->period ? part->period - rest : INT64_MAX;
}

/* Adds the position of the row of the dims before `split`; false if it is padding. */
static bool place_row(const RtView *view, int split, int64_t row, RtRange *range)
{
    int64_t own = view->size[split], whole = view->whole[split];
    for (int d = split - 1; d >= 0; d--) {
        int64_t i = row % view->size[d], at = rt_position(view->part[d], i);
        if (at >= view->whole[d])
            return false;
        range->own += i * own;
        range->whole += at * whole;
        own *= view->size[d];
        whole *= view->whole[d];
        row /= view->size[d];
    }
    return true;
}

bool rt_next_range(RtRanges *ranges, RtRange *range)
{
    const RtView *view = ranges->view;
    if (!view->is_held)
        return false;
    if (ranges->split < 0) { /* the whole tensor is on this rank */
        *range = (RtRange){ .count = view->count };
        return ranges->next++ == 0;
    }
    int64_t rows = 1;
    for (int d = 0; d < ranges->split; d++)
        rows *= view->size[d];
    const int d = ranges->split;
    while (ranges->next < rows * view->size[d]) {
        const int64_t row = ranges->next / view->size[d], own = ranges->next % view->size[d];
        const int64_t run = least(run_of_part(&view->part[d], own), view->size[d] - own);
        const int64_t whole = rt_position(view->part[d], own), left = view->whole[d] - whole;
        *range = (RtRange){ .own = own, .whole = whole, .count = least(run, left) };
        ranges->next += run;
        if (left <= 0 || !place_row(view, d, row, range))
            continue;
        range->own *= ranges->inner;
        range->whole *= ranges->inner;
        range->count *= ranges->inner;
        return true;
    }
    return false;
}

/* --- Windows -------------------------------------------------------------------------------- */

int64_t rt_view_bytes(const RtView *view)
{
    int64_t last = 0;
    for (int d = 0; d < view->rank; d++)
        last += (view->size[d] - 1) * view->stride[d];
    return (last + 1) * element_bytes(view->type);
}

char *rt_view_open(const Rt *rt, const RtView *view)
{
    return view->is_held ? rt_window_open(rt, view->offset, rt_view_bytes(view)) : NULL;
}

void rt_view_close(const Rt *rt, const RtView *view, char *window, bool is_changed)
{
    if (view->is_held)
        rt_window_close(rt, window, view->offset, rt_view_bytes(view), is_changed);
}

/* --- Elements ------------------------------------------------------------------------------- */

RtType rt_view_file_type(const RtView *view) { return view->type == RT_I32 || view->type == RT_BOOL ? RT_I32 : RT_F32; }

/* The position of an element, from element `first` on. */
typedef struct {
    int64_t index[RT_MAX_RANK];
    int64_t at; /* elements from the view's offset */
} Cursor;

static Cursor cursor_at(const RtView *view, int64_t first)
{
    Cursor cursor = { .at = 0 };
    for (int d = view->rank - 1; d >= 0; d--) {
        cursor.index[d] = first % view->size[d];
        cursor.at += cursor.index[d] * view->stride[d];
        first /= view->size[d];
    }
    return cursor;
}

/* The number of contiguous elements from here on, at most `count`. */
static int64_t run_at(const RtView *view, const Cursor *cursor, int64_t count)
{
    int last = view->rank - 1;
    if (last < 0 || view->stride[last] != 1)
        return 1;
    int64_t run = view->size[last] - cursor->index[last];
    return run < count ? run : count;
}

/* Advances to the first element after a run. */
static void advance(const RtView *view, Cursor *cursor, int64_t run)
{
    int64_t step = run;
    for (int d = view->rank - 1; d >= 0; d--, step = 1) {
        cursor->at += step * view->stride[d];
        cursor->index[d] += step;
        if (cursor->index[d] < view->size[d])
            return;
        cursor->at -= view->size[d] * view->stride[d];
        cursor->index[d] = 0;
    }
}

/* Of bool. */
static void read_bytes(const char *from, int64_t count, char *to)
{
    for (int64_t i = 0; i < count; i++) {
        const int32_t number = from[i] != 0;
        memcpy(to + 4 * i, &number, sizeof number);
    }
}

static bool is_wide(RtType type) { return type == RT_F32 || type == RT_I32; }

void rt_view_read(const RtView *view, const char *window, int64_t first, int64_t count, void *values)
{
    char *to = values;
    Cursor cursor = cursor_at(view, first);
    for (int64_t i = 0, run; i < count; i += run, advance(view, &cursor, run)) {
        run = run_at(view, &cursor, count - i);
        if (is_wide(view->type))
            memcpy(to + 4 * i, window + 4 * cursor.at, (size_t)(4 * run));
        else if (view->type == RT_BOOL)
            read_bytes(window + cursor.at, run, to + 4 * i);
        else
            rt_widen(view->type == RT_BF16, window + 2 * cursor.at, run, to + 4 * i);
    }
}

const void *rt_view_as_in_file(const RtView *view, const char *window, int64_t first)
{
    int64_t row = 1;
    for (int d = view->rank - 1; d >= 0; row *= view->size[d--])
        if (view->size[d] > 1 && view->stride[d] != row)
            return NULL;
    return is_wide(view->type) ? window + 4 * first : NULL;
}

void rt_view_write(const RtView *view, char *window, int64_t first, int64_t count, const void *values)
{
    const char *from = values;
    assert(view->type != RT_BOOL); /* state is never bool */
    Cursor cursor = cursor_at(view, first);
    for (int64_t i = 0, run; i < count; i += run, advance(view, &cursor, run)) {
        run = run_at(view, &cursor, count - i);
        if (is_wide(view->type))
            memcpy(window + 4 * cursor.at, from + 4 * i, (size_t)(4 * run));
        else
            rt_narrow(view->type == RT_BF16, from + 4 * i, run, window + 2 * cursor.at);
    }
}
