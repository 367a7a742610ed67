/* library.c -- calls of the runtime's kernels for LIBRARY ops.
 *
 * A kernel is called with constant shapes and is inlined, so that these fold away.
 */
#include "library.h"

#include <inttypes.h>
#include <string.h>

int64_t stride_along(const Value *value, Name dim)
{
    int at = find_dim(&value->type, dim);
    return at < 0 ? 0 : value->storage->stride[at];
}

char *numbers_text(Module *m, int count, const int64_t numbers[])
{
    char *text = arena_text(&m->arena, "(const int64_t[]){ %" PRId64, count ? numbers[0] : 1);
    for (int i = 1; i < count; i++)
        text = arena_text(&m->arena, "%s, %" PRId64, text, numbers[i]);
    return arena_text(&m->arena, "%s }", text);
}

char *call_text(Module *m, const char *function, int nitems, const char *const items[])
{
    return wrapped_list(m, arena_text(&m->arena, "%s(", function), nitems, items, ");", 4);
}

/* --- Boxes: place and concat ----------------------------------------------------------------------- */

/* Elements that are copied, or cleared: dims that lie one behind the other on both sides are one. */
typedef struct {
    int rank;
    int64_t size[MAX_RANK], to[MAX_RANK], from[MAX_RANK];
} Box;

static Box box_of(Module *m, const Op *op, const Value *whole, const Value *to, const Value *from)
{
    Box box = { 0 };
    for (int i = 0; i < whole->type.rank; i++) {
        const Dim *dim = &whole->type.dim[i];
        int64_t size = loop_size(m, op, dim), a = stride_along(to, dim->name), b = stride_along(from, dim->name);
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

static char *moved(Module *m, const Value *value, const char *text, int64_t elements)
{
    if (elements == 0)
        return arena_text(&m->arena, "%s", text);
    return arena_text(&m->arena, "(%s *)%s + %" PRId64, element_type(value->type.dtype), text, elements);
}

static char *bytes_text(Module *m, const Value *value)
{
    return arena_text(&m->arena, "%d", dtype_bytes(value->type.dtype));
}

static char *clear_text(Module *m, const Op *op, const char *text)
{
    const Value *y = result(op);
    Box box = box_of(m, op, y, y, y);
    const char *items[] = { bytes_text(m, y), text, numbers_text(m, box.rank, box.to),
                            arena_text(&m->arena, "%d", box.rank), numbers_text(m, box.rank, box.size) };
    return call_text(m, "rt_clear", 5, items);
}

/* Copies all of x to where element `first` of its result is. */
static char *copy_text(Module *m, const Op *op, const Value *x, const char *from, const char *to, int64_t first)
{
    const Value *y = result(op);
    Box box = box_of(m, op, x, y, x);
    const char *items[] = { bytes_text(m, y),
                            moved(m, y, to, first),
                            numbers_text(m, box.rank, box.to),
                            from,
                            numbers_text(m, box.rank, box.from),
                            arena_text(&m->arena, "%d", box.rank),
                            numbers_text(m, box.rank, box.size) };
    return call_text(m, "rt_copy", 7, items);
}

char *call_place(Module *m, const Op *op, const char *const operand[], const char *scratch)
{
    int64_t first = op->attrs.index * stride_along(result(op), op->attrs.dims.dim[0].name);
    return arena_text(&m->arena, "%s\n%s", clear_text(m, op, operand[1]),
                      copy_text(m, op, arg(op, 0), operand[0], operand[1], first));
}

char *call_concat(Module *m, const Op *op, const char *const operand[], const char *scratch)
{
    Name dim = op->attrs.dims.dim[0].name;
    const Type *a = &arg(op, 0)->type;
    int64_t behind = a->dim[find_dim(a, dim)].size * stride_along(result(op), dim);
    return arena_text(&m->arena, "%s\n%s", copy_text(m, op, arg(op, 0), operand[0], operand[2], 0),
                      copy_text(m, op, arg(op, 1), operand[1], operand[2], behind));
}

/* --- All of them ------------------------------------------------------------------------------------- */

static const struct {
    OpKind kind;
    char *(*call)(Module *, const Op *, const char *const operand[], const char *scratch);
    int64_t (*scratch)(Module *, const Op *);
} kernels[] = {
    { OP_place, call_place, NULL },
    { OP_concat, call_concat, NULL },
};

char *library_call(Module *m, const Op *op, const char *const operand[], const char *scratch)
{
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        const Value *value = i < op->args.count ? arg(op, i) : op->results.at[i - op->args.count];
        if (value->storage)
            continue;
        error_at(m->diags, (Where){ .at = op->loc }, "internal: '%s' has no place in memory", value->name);
        return NULL;
    }
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].kind == op->kind)
            return kernels[i].call(m, op, operand, scratch);
    error_at(m->diags, (Where){ .at = op->loc }, "the C back end has no kernel for %s", info(op)->name);
    return NULL;
}

int64_t library_scratch(Module *m, const Op *op)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].kind == op->kind && kernels[i].scratch)
            return kernels[i].scratch(m, op);
    return 0;
}
