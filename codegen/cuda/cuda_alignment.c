/* cuda_alignment.c -- the alignment of an operand of a kernel, over all calls of the function that it is in.
 *
 * Packs of neighbours are loaded at once from addresses that are multiples of their size.  Frames begin on cache lines,
 * so the address of a value in a frame says it.  A pointer of a called function is what its callers give: a value at an
 * address there, or a slice of it, which moves with the iterations of a loop.
 */
#include "cuda_library.h"

#include "ir/storage.h"

/* The largest power of two that divides both, of at most a cache line. */
static int64_t boundary(int64_t a, int64_t b)
{
    const int64_t most = aligned_bytes(1), both = a | b, largest = both & -both;
    return largest && largest < most ? largest : most;
}

/* The function that the op is in, or the op that it stands behind. */
static const Func *function_of(const Module *m, const Op *op)
{
    while (op->prev)
        op = op->prev;
    const Func *f = m->funcs;
    while (f && f->first != op)
        f = f->next;
    return f;
}

static int64_t begin_of(const Module *m, const Func *f, const Value *value);

/* How far the value moves from one iteration of the loop to the next, in bytes. */
static int64_t step_of(const Op *loop, const Value *value)
{
    const int at = loop->attrs.dims.count ? find_dim(&value->type, loop->attrs.dims.dim[0].name) : -1;
    return at >= 0 ? value->storage->stride[at] * dtype_bytes(value->type.dtype) : 0;
}

/* What a loop carries begins in its operand and ends in its result. */
static int64_t begin_of_pointer(const Module *m, const Func *f, int pointer)
{
    int64_t least = aligned_bytes(1);
    for (const Func *caller = m->funcs; caller; caller = caller->next)
        for (const Op *op = caller->first; op; op = op->next) {
            if (op->attrs.callee != f->name)
                continue;
            const Value *here = arg_or_result(op, pointer);
            least = boundary(least, begin_of(m, caller, here) | step_of(op, here));
            if (pointer < op->attrs.carried)
                least = boundary(least, begin_of(m, caller, op->results.at[pointer]));
        }
    return least;
}

static int64_t begin_of(const Module *m, const Func *f, const Value *value)
{
    const Storage *s = value->storage;
    return boundary(s->at, s->base == BY_POINTER ? begin_of_pointer(m, f, s->pointer) : 0);
}

bool is_address_aligned(const Module *m, const Op *reader, const Value *value, int64_t bytes)
{
    return begin_of(m, function_of(m, reader), value) % bytes == 0;
}
