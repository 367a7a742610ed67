/* in_one.c -- places the operands of a concat in its result, so that it copies nothing (see lies_in_place): in one
 * buffer of the frame or, if the function returns the result, in memory of the caller.
 *
 *   %4 = call %1, %w {callee=k}            at byte 0
 *   %5 = call %2, %w {callee=k}            at byte 1024
 *   %6 = concat %4, %5 {dims=[seq:512]}    at byte 0: no code
 */
#include "frame.h"
#include "storage.h"

/* Does the value have all elements of the one that it shows, in the order in which they lie? */
static bool shows_all(const Module *m, const Value *value)
{
    const Op *op = value->def;
    bool all = true;
    for (; op && info(op)->family == VIEW && all; op = arg(op, 0)->def)
        all = local_bytes(m, &result(op)->type) == local_bytes(m, &arg(op, 0)->type);
    return all;
}

/* Is each operand a tensor of its own, of whole cache lines? */
static bool may_be_one(const Module *m, const Op *op)
{
    bool may = joins_in_order(m, op);
    for (int i = 0; may && i < op->args.count; i++) {
        const int64_t bytes = local_bytes(m, &arg(op, i)->type);
        may = shows_all(m, arg(op, i)) && bytes == aligned_bytes(bytes);
        for (int k = 0; k < i; k++)
            may &= shown_by(arg(op, i)) != shown_by(arg(op, k));
    }
    return may;
}

Buffer *buffer_of_joined(Frame *frame, const Op *op, int number)
{
    bool may = may_be_one(frame->m, op);
    for (int i = 0; may && i < op->args.count; i++) {
        const Buffer *own = buffer_of(frame, arg(op, i));
        may = own && !own->pack && !own->is_placed && !own->has_slots &&
              own->bytes == local_bytes(frame->m, &arg(op, i)->type);
        for (int k = 0; k < i; k++)
            may = may && own != buffer_of(frame, arg(op, k));
    }
    if (!may)
        return NULL;
    Buffer *all = new_buffer(frame, local_bytes(frame->m, &result(op)->type), number, number);
    int64_t at = 0;
    for (int i = 0; i < op->args.count; i++) {
        Buffer *own = buffer_of(frame, arg(op, i));
        own->at = at;
        own->joined = all;
        at += own->bytes;
        all->first = own->first < all->first ? own->first : all->first;
        all->last = own->last > all->last ? own->last : all->last;
        all->ranks |= own->ranks;
    }
    return all;
}

/* May what the value shows be placed? */
static bool is_free(const Func *f, const Map *apart, const Value *value)
{
    const Op *op = value->def;
    return op && !value->storage && !map_get(apart, value) && index_of(&f->results, value) < 0 &&
           (info(op)->family == LIBRARY || info(op)->family == COLLECTIVE ||
            (info(op)->family == CONTROL && !op->attrs.dims.count));
}

void place_in_results(Module *m, const Func *f, const Map *apart)
{
    for (const Op *op = f->last; op; op = op->prev) { /* an operand may be a concat, too */
        const Value *y = info(op)->traits & JOINS ? result(op) : NULL;
        bool may = y && y->storage && is_row_major(m, y) && may_be_one(m, op);
        for (int i = 0; may && i < op->args.count; i++)
            may = is_free(f, apart, shown_by(arg(op, i)));
        int64_t behind = 0;
        for (int i = 0; may && i < op->args.count; i++) {
            Value *root = (Value *)shown_by(arg(op, i));
            root->storage = new_storage(m, &root->type, y->storage->at + behind);
            root->storage->base = y->storage->base;
            root->storage->pointer = y->storage->pointer;
            behind += local_bytes(m, &root->type);
        }
    }
}
