/* place.c -- the storage of one value, where that is known: dense, behind a pointer, or that of another value. */
#include "memory.h"
#include "storage.h"

#include <string.h>

Storage *new_storage(Module *m, const Type *type, int64_t at)
{
    Storage *storage = NEW(&m->arena, Storage);
    storage->at = at;
    int64_t stride = 1;
    for (int i = type->rank - 1; i >= 0; i--) {
        storage->stride[i] = stride;
        stride *= local_size(m, &type->dim[i]);
    }
    return storage;
}

Storage *new_pointer(Module *m, const Type *type, int pointer)
{
    Storage *storage = new_storage(m, type, 0);
    storage->base = BY_POINTER;
    storage->pointer = pointer;
    return storage;
}

void place_view(Module *m, const Op *op)
{
    const Value *x = arg(op, 0);
    Value *y = result(op);
    Storage *storage = NEW(&m->arena, Storage);
    *storage = *x->storage;
    int at = op->attrs.dim ? find_dim(&x->type, op->attrs.dim) : -1;
    if (at >= 0 && op->attrs.index) {
        int64_t bytes = op->attrs.index * x->storage->stride[at] * dtype_bytes(x->type.dtype);
        storage->at += bytes;
    }
    if (!strides_of_view(m, op, storage->stride)) /* those in the copy of x that will be made */
        memcpy(storage->stride, new_storage(m, &y->type, 0)->stride, sizeof storage->stride);
    y->storage = storage;
}

void place_started(const Value *value)
{
    if (value->def && info(value->def)->traits & WAITS)
        arg(value->def, 0)->storage = value->storage;
}

int64_t place_value(Module *m, Value *value, int64_t at)
{
    value->storage = new_storage(m, &value->type, at);
    return aligned_bytes(at + local_bytes(m, &value->type));
}
