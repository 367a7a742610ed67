/* storage.c -- properties that follow from the memory plan: alignment, state, buffers of loops, and messages. */
#include "storage.h"
#include "target.h"

bool have_same_address(const Value *a, const Value *b)
{
    const Storage *x = a->storage, *y = b->storage;
    return x && y && same_base(x, y) && x->at == y->at;
}

bool lies_in_order(const Module *m, const Value *value, const Names *order)
{
    int64_t stride = 1;
    for (int i = order->count - 1; i >= 0; i--) {
        int at = find_dim(&value->type, order->name[i]);
        int64_t size = local_size(m, &value->type.dim[at]);
        if (size > 1 && value->storage->stride[at] != stride)
            return false;
        stride *= size;
    }
    return true;
}

bool is_row_major(const Module *m, const Value *value)
{
    const Names order = dim_names(&value->type);
    return lies_in_order(m, value, &order);
}

bool is_passed_in_slices(const Op *op, const Value *value)
{
    return op->attrs.dims.count && find_dim(&value->type, op->attrs.dims.dim[0].name) == 0;
}

const Value *shown_by(const Value *value)
{
    while (value->def && info(value->def)->family == VIEW)
        value = arg(value->def, 0);
    return value;
}

bool strides_of_view(const Module *m, const Op *view, int64_t stride[])
{
    const Value *x = arg(view, 0), *y = result(view);
    const Names gone = dims_lacking(&x->type, &y->type);
    int64_t unit =
        gone.count ? x->storage->stride[find_dim(&x->type, gone.name[gone.count - 1])] : 0; /* the innermost */
    int64_t span = 0; /* the stride of what is around those so far; 0: none of them has several elements */
    bool nested = true;
    for (int i = gone.count - 1; i >= 0; i--) {
        const int at = find_dim(&x->type, gone.name[i]);
        const int64_t size = local_size(m, &x->type.dim[at]), own = x->storage->stride[at];
        if (size <= 1)
            continue;
        nested &= !span || own == span;
        unit = span ? unit : own;
        span = own * size;
    }
    for (int i = y->type.rank - 1; i >= 0; i--) {
        const int at = find_dim(&x->type, y->type.dim[i].name);
        stride[i] = at >= 0 ? x->storage->stride[at] : unit;
        unit *= at >= 0 ? 1 : local_size(m, &y->type.dim[i]);
    }
    return nested;
}

static int64_t end_of(const Module *m, const Value *value) { return value->storage->at + span_bytes(m, value); }

bool padding_overhangs(const Module *m, const Value *value)
{
    const Value *root = shown_by(value);
    return root != value && end_of(m, value) > end_of(m, root);
}

int64_t aligned_bytes(int64_t bytes)
{
    enum { CACHE_LINE = 64 };
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

/* --- Loops ------------------------------------------------------------------------------------- */

bool is_carried_in_place(const Op *loop, const Func *callee, int i)
{
    if (i >= loop->attrs.carried)
        return false;
    const Storage *from = callee->params.at[i]->storage, *to = callee->results.at[i]->storage;
    return same_base(from, to) && (from->base == BY_POINTER || from->at == to->at);
}

/* All calls of a kernel have the same scratch. */
static const void *scratch_key(const Op *op) { return op->attrs.callee ? (const void *)op->attrs.callee : op; }

int64_t scratch_bytes(Module *m, Map *known, const Op *op)
{
    uintptr_t more = (uintptr_t)map_get(known, scratch_key(op)); /* by one: 0 is unknown */
    if (!more) {
        more = 1 + (uintptr_t)m->target->scratch_bytes(m, op);
        map_put(known, scratch_key(op), (void *)more);
    }
    return (int64_t)more - 1;
}

void forget_scratch(Map *known, const Op *op)
{
    if (map_get(known, scratch_key(op)))
        map_put(known, scratch_key(op), NULL);
}

int64_t iteration_buffers(const Module *m, const Op *loop, const Func *callee)
{
    int64_t bytes = 0;
    for (int i = 0; i < loop->attrs.carried; i++)
        if (!is_carried_in_place(loop, callee, i))
            bytes += aligned_bytes(local_bytes(m, &callee->params.at[i]->type));
    return bytes + loop->attrs.slots;
}

bool is_written_behind(const Op *loop, int i, int64_t iteration, int64_t iterations)
{
    const int64_t left = iterations - 1 - iteration;
    return loop->results.at[i]->type.in_flight ? iteration % 2 == 0 : left % 2 == 1;
}

bool have_same_strides(const Module *m, const Value *a, const Value *b)
{
    bool alike = a->type.rank == b->type.rank && dtype_bytes(a->type.dtype) == dtype_bytes(b->type.dtype);
    for (int i = 0; alike && i < a->type.rank; i++) {
        const Dim *x = &a->type.dim[i], *y = &b->type.dim[i];
        int64_t size = local_size(m, x);
        alike = x->name == y->name && size == local_size(m, y) &&
                (size == 1 || a->storage->stride[i] == b->storage->stride[i]);
    }
    return alike;
}

bool has_strides_of_fold(const Module *m, const Op *op)
{
    const Value *one = op->attrs.dim ? arg(op, 0) : result(op), *several = op->attrs.dim ? result(op) : arg(op, 0);
    const Name name = op->attrs.dim ? op->attrs.dim : op->attrs.dims.dim[0].name;
    int64_t step = one->storage->stride[find_dim(&one->type, name)];
    bool good = true;
    for (int i = several->type.rank - 1; i >= 0; i--) {
        const int64_t size = local_size(m, &several->type.dim[i]);
        const int at = find_dim(&one->type, several->type.dim[i].name);
        good &= size <= 1 || several->storage->stride[i] == (at < 0 ? step : one->storage->stride[at]);
        step *= at < 0 ? size : 1;
    }
    return good;
}

/* --- Operands one behind the other --------------------------------------------------------------- */

bool lies_in_place(const Module *m, const Op *op)
{
    if (!(info(op)->traits & JOINS))
        return false;
    const Value *y = result(op);
    const int at = find_dim(&y->type, op->attrs.dims.dim[0].name);
    int64_t behind = 0;
    bool good = y->storage;
    for (int i = 0; good && i < op->args.count; i++) {
        const Value *x = arg(op, i);
        good = x->storage && same_base(x->storage, y->storage) && x->storage->at == y->storage->at + behind &&
               x->type.rank == y->type.rank;
        for (int d = 0; good && d < y->type.rank; d++)
            good = x->type.dim[d].name == y->type.dim[d].name &&
                   (local_size(m, &x->type.dim[d]) <= 1 || x->storage->stride[d] == y->storage->stride[d]);
        behind += good ? local_size(m, &x->type.dim[at]) * y->storage->stride[at] * dtype_bytes(y->type.dtype) : 0;
    }
    return good;
}

bool joins_in_order(const Module *m, const Op *op)
{
    if (!(info(op)->traits & JOINS))
        return false;
    const Type *type = &result(op)->type;
    bool good = true;
    for (int d = 0; type->dim[d].name != op->attrs.dims.dim[0].name; d++)
        good &= local_size(m, &type->dim[d]) <= 1;
    for (int i = 0; i < op->args.count; i++)
        for (int d = 0; d < type->rank; d++)
            good &= arg(op, i)->type.dim[d].name == type->dim[d].name &&
                    arg(op, i)->type.dim[d].padded == arg(op, i)->type.dim[d].size;
    return good;
}
