/* library_copy.c -- pad and concat: copying and clearing boxes of elements. */
#include "library.h"

#include <inttypes.h>

/* Dims that are contiguous on both sides are merged. */
typedef struct {
    int rank;
    int64_t size[MAX_RANK], to[MAX_RANK], from[MAX_RANK];
} Box;

/* All elements of `from`, with strides in `to` and in `from`. */
static Box box_of(const Operands *o, const Value *to, const Value *from)
{
    Box box = { 0 };
    for (int i = 0; i < from->type.rank; i++) {
        Name dim = from->type.dim[i].name;
        const Name there = find_dim(&to->type, dim) < 0 ? o->op->attrs.dims.dim[0].name : dim; /* pad may rename */
        int64_t size = size_along(o, from, dim), a = stride_of(to, there), b = stride_of(from, dim);
        int last = box.rank - 1;
        if (size == 1)
            continue;
        if (last >= 0 && box.to[last] == a * size && box.from[last] == b * size) {
            box.size[last] *= size;
        } else {
            last = box.rank++;
            box.size[last] = size;
        }
        box.to[last] = a;
        box.from[last] = b;
    }
    if (box.rank == 0)
        box = (Box){ 1, { 1 }, { 1 }, { 1 } };
    return box;
}

static char *numbers_text(Module *m, int count, const int64_t numbers[])
{
    char *text = "";
    for (int i = 0; i < count; i++)
        text = arena_text(&m->arena, "%s%s%" PRId64, text, i ? ", " : "", numbers[i]);
    return arena_text(&m->arena, "(const int64_t[]){ %s }", text);
}

static char *number(const Operands *o, int64_t value) { return arena_text(&o->m->arena, "%" PRId64, value); }
static char *bytes_text(const Operands *o, const Value *value) { return number(o, dtype_bytes(value->type.dtype)); }

/* The box on one side. */
static Access access_of(const Box *box, const int64_t stride[], int64_t first)
{
    Access access = { 0 };
    for (int i = 0; i < box->rank; i++)
        add_access(&access, box->size[i], stride[i]);
    add_access(&access, 2, first); /* offset by the first elements */
    return access;
}

static char *clear_text(const Operands *o, const Value *y)
{
    Box box = box_of(o, y, y);
    const Access cleared = access_of(&box, box.to, 0);
    check_operand(o, o->count - 1, &cleared);
    const char *items[] = { bytes_text(o, y), "y", numbers_text(o->m, box.rank, box.to), number(o, box.rank),
                            numbers_text(o->m, box.rank, box.size) };
    return wrapped_list(o->m, "rt_clear(", 5, items, ");\n", 4);
}

/* Copies an operand to the result, from element `first` on. */
static char *copy_text(const Operands *o, int operand, const Value *y, int64_t first)
{
    Box box = box_of(o, y, o->value[operand]);
    const Access to_box = access_of(&box, box.to, first), from_box = access_of(&box, box.from, 0);
    check_operand(o, o->count - 1, &to_box);
    check_operand(o, operand, &from_box);
    const char *to = first ? arena_text(&o->m->arena, "y + %" PRId64, first) : "y";
    const char *items[] = { bytes_text(o, y),
                            to,
                            numbers_text(o->m, box.rank, box.to),
                            o->name[operand],
                            numbers_text(o->m, box.rank, box.from),
                            number(o, box.rank),
                            numbers_text(o->m, box.rank, box.size) };
    return wrapped_list(o->m, "rt_copy(", 7, items, ");\n", 4);
}

char *call_pad(const Operands *o)
{
    const Value *y = o->value[1];
    int64_t first = o->op->attrs.index * stride_of(y, o->op->attrs.dims.dim[0].name);
    return arena_text(&o->m->arena, "%s%s", clear_text(o, y), copy_text(o, 0, y, first));
}

char *call_concat(const Operands *o)
{
    const int count = o->op->args.count;
    const Value *y = o->value[count];
    Name dim = o->op->attrs.dims.dim[0].name;
    char *text = "";
    for (int64_t i = 0, first = 0; i < count; i++) {
        text = arena_text(&o->m->arena, "%s%s", text, copy_text(o, (int)i, y, first * stride_of(y, dim)));
        first += size_along(o, o->value[i], dim);
    }
    return text;
}
