/* plant_memory.c -- faults in the memory plan: overlapping values, frames, strides, messages in flight. */
#include "flight.h"
#include "plant.h"
#include "storage.h"
#include "target.h"

static bool reads(const Op *op, const Value *value) { return index_of(&op->args, value) >= 0; }

static bool is_read_after(const Op *op, const Value *value)
{
    for (op = op->next; op; op = op->next)
        if (reads(op, value))
            return true;
    return false;
}

/* A value with its own bytes in this function's frame, except zeros, which may share them. */
static bool lies_in_frame(const Op *op)
{
    return op->args.count && info(op)->family != VIEW && op->results.count && result(op)->storage &&
           result(op)->storage->base == IN_FRAME;
}

/* A value defined before `op`, and read after it. */
static const Value *living_across(const Op *op)
{
    for (const Op *above = op->prev; above; above = above->prev)
        if (lies_in_frame(above) && is_read_after(op, result(above)))
            return result(above);
    return NULL;
}

static bool is_placed(Module *m, Func *f, Op *op)
{
    return f->role != KERNEL && lies_in_frame(op) && living_across(op) && is_read_after(op, result(op));
}

static bool is_framed(Module *m, Func *f, Op *op)
{
    const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    return callee && callee->role != KERNEL && callee->frame && living_across(op);
}

/* The operand of a collective started before `op` and waited for after it. */
static const Value *on_its_way(const Op *op)
{
    for (const Op *above = op->prev; above; above = above->prev)
        if (above->attrs.started && is_read_after(op, result(above)) && arg(above, 0)->storage->base == IN_FRAME)
            return arg(above, 0);
    return NULL;
}

static bool is_beside_message(Module *m, Func *f, Op *op)
{
    return f->role != KERNEL && lies_in_frame(op) && !op->attrs.started && on_its_way(op);
}

static bool has_rows(Module *m, Func *f, Op *op)
{
    const Type *type = op->results.count ? &result(op)->type : NULL;
    return is_placed(m, f, op) && type->rank > 1 && local_size(m, &type->dim[0]) > 1 &&
           local_size(m, &type->dim[1]) > 1;
}

static bool share_memory(Module *m, Func *f, Op *op)
{
    result(op)->storage->at = living_across(op)->storage->at;
    return true;
}

static bool write_over_message(Module *m, Func *f, Op *op)
{
    result(op)->storage->at = on_its_way(op)->storage->at;
    return true;
}

static bool share_frame(Module *m, Func *f, Op *op)
{
    op->attrs.frame = living_across(op)->storage->at;
    return true;
}

/* Makes rows overlap by half. */
static bool narrow_rows(Module *m, Func *f, Op *op)
{
    const Type *type = &result(op)->type;
    int64_t *stride = result(op)->storage->stride, row = local_size(m, &type->dim[1]) * stride[1];
    bool is_padded = false; /* padding may lie over what is behind it */
    for (int i = 1; i < type->rank; i++)
        is_padded |= type->dim[i].size < type->dim[i].padded;
    if (stride[0] != row || is_padded)
        return false;
    stride[0]--;
    return true;
}

static bool is_wait(Module *m, Func *f, Op *op) { return op->kind == OP_wait; }

/* From its middle on. */
static bool share_half(Module *m, Func *f, Op *op)
{
    const Value *other = living_across(op);
    int64_t bytes = local_bytes(m, &other->type), width = dtype_bytes(other->type.dtype);
    result(op)->storage->at = other->storage->at + bytes / 2 / width * width;
    return true;
}

static bool is_view(Module *m, Func *f, Op *op)
{
    return op->results.count == 1 && result(op)->storage && (op->kind == OP_slice || op->kind == OP_part);
}

/* One element further on. */
static bool begin_late(Module *m, Func *f, Op *op)
{
    Storage *storage = result(op)->storage;
    storage->at += dtype_bytes(result(op)->type.dtype);
    return true;
}

static bool needs_scratch(Module *m, Func *f, Op *op)
{
    return f->role != KERNEL && lies_in_frame(op) && !op->attrs.callee && m->target->scratch_bytes(m, op) &&
           living_across(op);
}

/* A value that alternates between two buffers, and is read after the next iteration's value is written. */
static int carried_apart(Module *m, const Op *op)
{
    const Func *callee = op->kind == OP_loop ? find_func(m, op->attrs.callee) : NULL;
    for (int i = 0; callee && i < op->attrs.carried; i++)
        if (callee->params.at[i]->storage && !is_carried_in_place(op, callee, i) && callee->results.at[i]->def &&
            is_read_after(callee->results.at[i]->def, callee->params.at[i]))
            return i;
    return -1;
}

static bool carries_apart(Module *m, Func *f, Op *op) { return carried_apart(m, op) >= 0; }

static bool carry_in_place(Module *m, Func *f, Op *op)
{
    int i = carried_apart(m, op);
    const Func *callee = find_func(m, op->attrs.callee);
    *callee->results.at[i]->storage = *callee->params.at[i]->storage;
    return true;
}

static bool begins_step(Module *m, Func *f, Op *op) { return f->role == STEP && op == f->first && f->frame; }

static bool shorten_arena(Module *m, Func *f, Op *op)
{
    for (f = m->funcs; f; f = f->next)
        f->frame -= is_program(f) ? aligned_bytes(1) : 0;
    return true;
}

static bool is_fetch(Module *m, Func *f, Op *op) { return info(op)->traits & CARRIES && !op->attrs.tier; }
static bool puts_back(Module *m, Func *f, Op *op) { return info(op)->traits & CARRIES && op->args.count == 2; }

static bool keep_old(Module *m, Func *f, Op *op)
{
    replace_uses(f, result(op), arg(op, 1));
    return true;
}

static bool put_elsewhere(Module *m, Func *f, Op *op)
{
    Value *other = value_like(f, op, 1);
    Storage *storage = NEW(&m->arena, Storage);
    if (!other || !other->storage)
        return false;
    *storage = *other->storage;
    result(op)->storage = storage;
    return true;
}

/* What the step leaves to the next one of the state that it has updated. */
static bool is_read_ahead(Module *m, Func *f, Op *op)
{
    const Op *loop = op->attrs.started && is_fetch(m, f, op) ? arg(op, 0)->def : NULL;
    return f->role == STEP && loop && loop->kind == OP_loop;
}

/* Before this step has written it: as it was. */
static bool read_too_early(Module *m, Func *f, Op *op)
{
    Value *new = arg(op, 0);
    for (int i = 0; new->storage &&i < new->def->args.count; i++) {
        Value *old = arg(new->def, i);
        if (old->storage->base != new->storage->base || old->storage->at != new->storage->at)
            continue;
        op->args.at[0] = old;
        remove_op(f, op);
        insert_op(f, op, new->def);
        return true;
    }
    return false;
}

/* What the step before has left, and an op behind this one reads. */
static const Value *left_across(const Func *f, const Op *op)
{
    for (int i = 0; f->role == STEP && i < f->params.count; i++)
        if (f->params.at[i]->port.kind == PORT_LEFT && f->params.at[i]->storage && is_read_after(op, f->params.at[i]))
            return f->params.at[i];
    return NULL;
}

static bool is_before_left(Module *m, Func *f, Op *op)
{
    return f->role == STEP && lies_in_frame(op) && left_across(f, op);
}

static bool write_over_left(Module *m, Func *f, Op *op)
{
    result(op)->storage->at = left_across(f, op)->storage->at;
    return true;
}

/* What a message of the iteration before reads until a wait behind this op. */
static const Value *sent_across(Module *m, const Func *f, const Op *op)
{
    for (const Op *wait = op->next; wait; wait = wait->next) {
        const Value *sent = info(wait)->traits & WAITS ? sent_before(f, arg(wait, 0)) : NULL;
        if (sent && sent->storage && local_bytes(m, &result(op)->type) <= local_bytes(m, &sent->type))
            return sent;
    }
    return NULL;
}

static bool is_before_arrival(Module *m, Func *f, Op *op) { return lies_in_frame(op) && sent_across(m, f, op); }

static bool write_over_sent(Module *m, Func *f, Op *op)
{
    const Value *sent = sent_across(m, f, op);
    Storage *storage = result(op)->storage;
    storage->base = sent->storage->base;
    storage->pointer = sent->storage->pointer;
    storage->at = sent->storage->at;
    return true;
}

/* Slices of a weight that a loop has for the next iteration. */
static bool is_rotated(Module *m, Func *f, Op *op)
{
    const Op *one = op->kind == OP_concat ? arg(op, 0)->def : NULL, *other = one ? arg(op, 1)->def : NULL;
    return op->args.count == 2 && one && other && one->kind == OP_part && other->kind == OP_part &&
           arg(one, 0) == arg(other, 0) && type_equal(&arg(one, 0)->type, &result(op)->type);
}

static bool take_own_slices(Module *m, Func *f, Op *op)
{
    replace_uses(f, result(op), arg(arg(op, 0)->def, 0));
    return true;
}

static const Plant plants[] = {
    { 'i', "two values that live at one time share memory", is_placed, share_memory },
    { 'i', "a value begins in the middle of another", is_placed, share_half },
    { 'i', "a called function's frame lies over a living value", is_framed, share_frame },
    { 'i', "scratch lies over a living value", needs_scratch, share_frame },
    { 'i', "what is on its way is written over", is_beside_message, write_over_message },
    { 'i', "nobody waits for a message", is_wait, leave_out },
    { 'i', "rows lie over each other", has_rows, narrow_rows },
    { 'i', "a view begins an element late", is_view, begin_late },
    { 'i', "what a loop carries is written over while it is read", carries_apart, carry_in_place },
    { 'i', "the arena is too short", begins_step, shorten_arena },
    { 'i', "what a step has left is written over", is_before_left, write_over_left },
    { 'i', "what the iteration before has sent is written over", is_before_arrival, write_over_sent },
    { 'i', "what is computed for the next iteration has this one's weights", is_rotated, take_own_slices },
    { 't', "another tensor is fetched", is_fetch, read_another },
    { 't', "state is read for the next step before it is new", is_read_ahead, read_too_early },
    { 't', "state that is offloaded is not put back", puts_back, keep_old },
    { 't', "state is put back in another's place", puts_back, put_elsewhere },
};
const PlantList plants_of_memory = { sizeof plants / sizeof *plants, plants };
