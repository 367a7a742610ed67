/* extent.c -- see extent.h. */
#include "extent.h"

#include "codegen.h"
#include "ir/storage.h"
#include "target.h"

#include <inttypes.h>

/* --- Accesses --------------------------------------------------------------------------------------- */

void add_access(Access *access, int64_t size, int64_t stride)
{
    access->size[access->dims] = size;
    access->stride[access->dims++] = stride;
}

/* Elements from the first to the end of the last. */
static int64_t reach(const Access *access)
{
    int64_t last = 0;
    for (int i = 0; i < access->dims; i++)
        last += (access->size[i] - 1) * access->stride[i];
    return last + 1;
}

static bool too_far(Module *m, const Op *op, Name name, int64_t reached, int64_t room)
{
    error_at(m->diags, (Where){ .at = op->loc },
             "internal: %s '%s' reaches element %" PRId64 " of '%s', which has %" PRId64 " in memory", info(op)->name,
             op->path ? op->path : "", reached - 1, name, room);
    return false;
}

bool access_stays_inside(Module *m, const Op *op, Name name, const Type *type, const Storage *storage,
                         const Access *access)
{
    const Value value = { .type = *type, .storage = (Storage *)storage };
    int64_t room = span_bytes(m, &value) / dtype_bytes(type->dtype), reached = reach(access);
    return reached <= room || too_far(m, op, name, reached, room);
}

bool holds(Module *m, const Op *op, const Value *value, int64_t count)
{
    Access access = { 0 };
    add_access(&access, count, 1);
    return access_stays_inside(m, op, value->name, &value->type, value->storage, &access);
}

/* --- ShardOffsets ------------------------------------------------------------------------------------------- */

static bool is_misplaced(Module *m, const Op *op, const Value *value, const char *where)
{
    Where at = { 0 };
    if (op)
        at.at = op->loc;
    error_at(m->diags, at, "internal: '%s' is not inside %s", value->name, where);
    return false;
}

/* Is a value in the frame within the frame's bounds? */
static bool is_in_frame(Module *m, const Func *f, const Op *op, const Value *value)
{
    const Storage *s = value->storage;
    bool good = s->base != IN_FRAME || padding_overhangs(m, value) || s->at + span_bytes(m, value) <= f->frame;
    return good || is_misplaced(m, op, value, "its frame");
}

/* Bytes from the first to the end of the last element that loops visit: without padding of dims that are not split. */
static int64_t visited_bytes(Module *m, const Value *value)
{
    int64_t last = 0;
    for (int i = 0; i < value->type.rank; i++)
        last += (loop_size(m, &value->type.dim[i]) - 1) * value->storage->stride[i];
    return (last + 1) * dtype_bytes(value->type.dtype);
}

static bool is_in_viewed(Module *m, const Op *view)
{
    const Value *x = arg(view, 0), *y = result(view);
    const int64_t begin = x->storage->at, at = y->storage->at;
    bool good =
        same_base(x->storage, y->storage) && at >= begin && at + visited_bytes(m, y) <= begin + span_bytes(m, x);
    return good || is_misplaced(m, view, y, "the viewed value");
}

/* Is the scratch of an op, or the frame of its callee, within the frame? */
static bool fits_beside(Module *m, const Func *f, const Op *op)
{
    const Func *callee = function_called_by(m, op);
    int64_t bytes =
        callee ? aligned_bytes(callee->frame) + iteration_buffers(m, op, callee) : m->target->scratch_bytes(m, op);
    if (bytes == 0 || op->attrs.frame + bytes <= f->frame)
        return true;
    error_at(m->diags, (Where){ .at = op->loc },
             "internal: %s '%s' needs %" PRId64 " bytes at %" PRId64 " of a frame of %" PRId64, info(op)->name,
             op->path ? op->path : "", bytes, op->attrs.frame, f->frame);
    return false;
}

static bool check_op(Module *m, const Func *f, const Op *op)
{
    for (int i = 0; i < op->results.count; i++)
        if (!op->results.at[i]->storage)
            return is_misplaced(m, op, op->results.at[i], "any memory");
    bool good = info(op)->family == VIEW ? is_in_viewed(m, op) : fits_beside(m, f, op);
    for (int i = 0; i < op->results.count; i++)
        good &= is_in_frame(m, f, op, op->results.at[i]);
    return good;
}

bool check_frames(Module *m)
{
    bool good = true;
    for (const Func *f = m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count && f->role != KERNEL; i++)
            good &= is_in_frame(m, f, NULL, f->params.at[i]);
        for (const Op *op = f->first; op && f->role != KERNEL; op = op->next)
            good &= check_op(m, f, op);
    }
    return good;
}

int64_t stride_of(const Value *value, Name dim)
{
    int at = find_dim(&value->type, dim);
    return at < 0 ? 0 : value->storage->stride[at];
}
