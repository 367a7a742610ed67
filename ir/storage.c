/* storage.c -- what the plan of memory says between the lines: alignment, state, the buffers of loops, and messages. */
#include "storage.h"

bool coincide(const Value *a, const Value *b)
{
    const Storage *x = a->storage, *y = b->storage;
    return x && y && same_base(x, y) && x->at == y->at;
}

bool is_row_major(const Module *m, const Value *value)
{
    int64_t stride = 1;
    for (int i = value->type.rank - 1; i >= 0; i--) {
        int64_t size = local_size(m, &value->type.dim[i]);
        if (size > 1 && value->storage->stride[i] != stride)
            return false;
        stride *= size;
    }
    return true;
}

const Value *shown_by(const Value *value)
{
    while (value->def && info(value->def)->family == VIEW)
        value = arg(value->def, 0);
    return value;
}

static int64_t end_of(const Module *m, const Value *value) { return value->storage->at + span_bytes(m, value); }

bool overhangs(const Module *m, const Value *value)
{
    const Value *root = shown_by(value);
    return root != value && end_of(m, value) > end_of(m, root);
}

int64_t aligned_bytes(int64_t bytes)
{
    enum { CACHE_LINE = 64 };
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

bool reads_view_of(const Op *op, const Value *value)
{
    for (int i = 0; i < op->args.count; i++)
        if (arg(op, i) != value && shown_by(arg(op, i)) == value)
            return true;
    return false;
}

/* --- Loops ------------------------------------------------------------------------------------- */

bool is_carried_in_place(const Op *loop, const Func *callee, int i)
{
    if (i >= loop->attrs.carried)
        return false;
    const Storage *from = callee->params.at[i]->storage, *to = callee->results.at[i]->storage;
    return same_base(from, to) && (from->base == BY_POINTER || from->at == to->at);
}

int64_t turn_buffers(const Module *m, const Op *loop, const Func *callee)
{
    int64_t bytes = 0;
    for (int i = 0; i < loop->attrs.carried; i++)
        if (!is_carried_in_place(loop, callee, i))
            bytes += aligned_bytes(local_bytes(m, &callee->params.at[i]->type));
    for (const Op *op = first_ahead(callee); op; op = next_ahead(op))
        bytes += 2 * aligned_bytes(local_bytes(m, &result(op)->type));
    return bytes;
}

/* --- Collectives that run ahead ------------------------------------------------------------------ */

static const Op *ahead_from(const Op *op)
{
    while (op && !op->attrs.ahead)
        op = op->next;
    return op;
}

const Op *first_ahead(const Func *f) { return ahead_from(f->first); }
const Op *next_ahead(const Op *op) { return ahead_from(op->next); }

int count_ahead(const Func *f)
{
    int count = 0;
    for (const Op *op = first_ahead(f); op; op = next_ahead(op))
        count++;
    return count;
}

const Op *only_loop(const Module *m, const Func *f)
{
    const Op *found = NULL;
    int calls = 0;
    for (const Func *caller = m->funcs; caller; caller = caller->next)
        for (const Op *op = caller->first; op; op = op->next)
            if (op->attrs.callee && find_func(m, op->attrs.callee) == f) {
                calls++;
                found = op;
            }
    return calls == 1 && found->attrs.dims.count ? found : NULL;
}

bool can_run_ahead(const Module *m, const Func *f, const Op *op)
{
    const Op *loop = info(op)->traits & SENDS ? only_loop(m, f) : NULL;
    int at = loop ? index_of(&f->params, arg(op, 0)) : -1;
    return at >= 0 && at >= loop->attrs.carried && find_dim(&arg(loop, at)->type, loop->attrs.dims.dim[0].name) >= 0;
}

bool is_one_message(const Op *a, const Op *b)
{
    if (a->kind != b->kind || !(info(a)->traits & SENDS) || !a->attrs.bucket || a->attrs.bucket != b->attrs.bucket)
        return false;
    const Type *x = &arg(a, 0)->type, *y = &arg(b, 0)->type;
    return a->attrs.axis == b->attrs.axis && x->dtype == y->dtype && x->by == y->by;
}
