/* tensors.c -- lists the tensors of a program under their full names, and copies their elements out of and into the
 * arena, whatever their memory order. */
#include "tensors.h"

#include "convert.h"
#include "state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- Names ---------------------------------------------------------------------------------- */

/* The k-th '*' of the path becomes copy[k]. */
static char *full_name(const RtTensor *tensor, const int64_t *copy)
{
    char *name = tensor->state ? rt_text("optimizer.%s", tensor->state) : rt_text("%s", "");
    const char *separator = tensor->state && tensor->name && *tensor->name ? "." : "";
    char *path = rt_text("%s%s", name, separator);
    free(name);
    for (const char *c = tensor->name ? tensor->name : ""; *c; c++) {
        char *longer = *c == '*' ? rt_text("%s%lld", path, (long long)*copy++) : rt_text("%s%c", path, *c);
        free(path);
        path = longer;
    }
    return path;
}

static RtView view_of(const RtTensor *tensor, const int64_t *copy)
{
    RtView view = { .name = full_name(tensor, copy),
                    .tensor = tensor,
                    .is_state = tensor->state != NULL,
                    .type = tensor->type,
                    .rank = tensor->rank - tensor->copies,
                    .offset = tensor->offset,
                    .count = 1 };
    int64_t element = tensor->type == RT_F32 || tensor->type == RT_I32 ? 4 : 2;
    assert(tensor->type != RT_BOOL); /* no state is of truth values */
    for (int d = 0; d < tensor->copies; d++)
        view.offset += element * copy[d] * tensor->stride[d];
    for (int d = 0; d < view.rank; d++) {
        view.size[d] = tensor->size[tensor->copies + d];
        view.stride[d] = tensor->stride[tensor->copies + d];
        view.count *= view.size[d];
    }
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

RtView *rt_views(const RtProgram *program, int *count)
{
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
            *view++ = view_of(t, copy);
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

/* --- Elements ------------------------------------------------------------------------------- */

RtType rt_view_file_type(const RtView *view) { return view->type == RT_I32 ? RT_I32 : RT_F32; }

/* Where an element lies: element `first` to begin with, then one after the other. */
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

/* How many elements from here on, at most `count`, lie one after the other. */
static int64_t run_at(const RtView *view, const Cursor *cursor, int64_t count)
{
    int last = view->rank - 1;
    if (last < 0 || view->stride[last] != 1)
        return 1;
    int64_t run = view->size[last] - cursor->index[last];
    return run < count ? run : count;
}

/* To the first element after a run. */
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

static bool is_wide(RtType type) { return type == RT_F32 || type == RT_I32; }

static void widen(RtType type, const char *from, char *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, 2);
        float value = type == RT_BF16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
        memcpy(to + 4 * i, &value, 4);
    }
}

static void narrow(RtType type, const char *from, char *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, from + 4 * i, 4);
        uint16_t bits = type == RT_BF16 ? rt_bf16_of_float(value) : rt_f16_of_float(value);
        memcpy(to + 2 * i, &bits, 2);
    }
}

void rt_view_read(const RtView *view, const char *arena, int64_t first, int64_t count, void *values)
{
    const char *base = arena + view->offset;
    char *to = values;
    Cursor cursor = cursor_at(view, first);
    for (int64_t i = 0, run; i < count; i += run, advance(view, &cursor, run)) {
        run = run_at(view, &cursor, count - i);
        if (is_wide(view->type))
            memcpy(to + 4 * i, base + 4 * cursor.at, (size_t)(4 * run));
        else
            widen(view->type, base + 2 * cursor.at, to + 4 * i, run);
    }
}

void rt_view_write(const RtView *view, char *arena, int64_t first, int64_t count, const void *values)
{
    char *base = arena + view->offset;
    const char *from = values;
    Cursor cursor = cursor_at(view, first);
    for (int64_t i = 0, run; i < count; i += run, advance(view, &cursor, run)) {
        run = run_at(view, &cursor, count - i);
        if (is_wide(view->type))
            memcpy(base + 4 * cursor.at, from + 4 * i, (size_t)(4 * run));
        else
            narrow(view->type, from + 4 * i, base + 2 * cursor.at, run);
    }
}
