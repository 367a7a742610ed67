/* memory.c -- one arena, with the address of every value: the peak is known to the byte before anything runs.
 *
 * A value lives from the op that defines it to the last op that reads it; values with disjoint lifetimes may share
 * memory.  A called function has a frame of its own inside its caller's; its parameters and results are pointers.  The
 * arena has first the tensors that outlive a step, then scalars and inputs, then the frame that step, evaluation and
 * prediction share.
 *
 * Reads: types, order, families.  Writes: Value.storage, Func.frame, {frame=...} of calls.
 */
#include "frame.h"
#include "map.h"
#include "micro.h"
#include "needed.h"
#include "schedule/slots.h"
#include "storage.h"
#include "target.h"
#include "tier.h"

#include <stdint.h>
#include <stdlib.h>

Buffer *new_buffer(Frame *frame, int64_t bytes, int first, int last)
{
    Buffer *buffer = NEW(&frame->m->arena, Buffer);
    *buffer =
        (Buffer){ .bytes = aligned_bytes(bytes), .first = first, .last = last, .until = -1, .next = frame->buffers };
    frame->buffers = buffer;
    frame->nbuffers++;
    return buffer;
}

static Buffer *where_joined(Buffer *buffer)
{
    while (buffer && buffer->joined)
        buffer = buffer->joined;
    return buffer;
}

Buffer *buffer_of(const Frame *frame, const void *key) { return where_joined(map_get(&frame->buffer, key)); }

/* Where in the buffer of buffer_of() it is, in bytes. */
int64_t offset_in_buffer(const Frame *frame, const void *key)
{
    int64_t offset = 0;
    for (const Buffer *buffer = map_get(&frame->buffer, key); buffer && buffer->joined; buffer = buffer->joined)
        offset += buffer->at;
    return offset;
}

/* --- Operands whose memory a result takes ---------------------------------------------------------- */

/* Are they in the same memory?  Members of a whole pack have places of their own in its buffer. */
static bool share_memory(const Frame *frame, const Value *a, const Value *b)
{
    const Buffer *buffer = buffer_of(frame, a);
    if (buffer != buffer_of(frame, b))
        return false;
    const Value *x = shown_by(a), *y = shown_by(b);
    const int64_t from = offset_in_buffer(frame, x), other = offset_in_buffer(frame, y);
    return !buffer->pack ||
           (from < other + local_bytes(frame->m, &y->type) && other < from + local_bytes(frame->m, &x->type));
}

static bool is_taken(const Frame *frame, const Op *op, int before, const Value *operand)
{
    for (int i = 0; i < before; i++)
        if (share_memory(frame, operand, op->results.at[i]))
            return true;
    return false;
}

/* The initial value of a loop's value carried in place has the storage of the result; a value in flight ends in the
 * storage of its initial value. */
static bool carries_in_place(const Module *m, const Op *op, int result, int operand)
{
    const Func *callee = called_by(m, op);
    return callee && result == operand && result < op->attrs.carried &&
           (op->results.at[result]->type.in_flight || is_carried_in_place(op, callee, result));
}

/* Does the op read this memory through another operand too: a view, or the same value?  Initial values of values
 * carried in place do not count: a loop copies them to their final storage before the first iteration. */
static bool reads_otherwise(const Frame *frame, const Op *op, int operand)
{
    for (int i = 0; i < op->args.count; i++)
        if (i != operand && share_memory(frame, arg(op, operand), arg(op, i)) && !carries_in_place(frame->m, op, i, i))
            return true;
    return false;
}

/* Is it there before that has been read which the result replaces? */
static bool is_there_too_early(const Frame *frame, const Value *result, const Buffer *buffer)
{
    const Value *left = map_get(&frame->left, result);
    return left && buffer->first <= later(&frame->last, left, -1);
}

/* The buffer of an operand, or its place in one, if this op is its last use and the result may overwrite it. */
static Buffer *dying_operand(Frame *frame, const Op *op, int number, int at, int i)
{
    const Value *operand = arg(op, i);
    Buffer *buffer = operand->def ? buffer_of(frame, operand) : NULL;
    const int last = buffer && buffer->pack ? later(&frame->last, operand, -1) : buffer ? buffer->last : -1;
    if (!buffer || (buffer->pack && !buffer->pack->whole) || last != number || info(operand->def)->family == VIEW)
        return NULL;
    bool may = may_overwrite(frame->m, &frame->lifetimes, op, at, i) || carries_in_place(frame->m, op, at, i);
    return may && !reads_otherwise(frame, op, i) && !is_taken(frame, op, at, operand) &&
                   !is_there_too_early(frame, op->results.at[at], buffer)
               ? map_get(&frame->buffer, operand)
               : NULL;
}

/* What is in the buffer is in `place`. */
static void join_buffers(Buffer *buffer, Buffer *place)
{
    Buffer *all = where_joined(place);
    all->first = buffer->first < all->first ? buffer->first : all->first;
    all->ranks |= buffer->ranks;
    buffer->joined = place;
}

/* The buffer of an operand that the result takes, or its place in one; NULL: none.  Terms of a sum that are on
 * different ranks take one: so each rank has its own where the result is. */
static Buffer *operands_place(Frame *frame, const Op *op, int number, int at)
{
    Buffer *place = NULL;
    for (int i = 0; i < op->args.count && !map_get(frame->apart, op) && (!place || info(op)->traits & MOVES); i++) {
        Buffer *own = dying_operand(frame, op, number, at, i), *buffer = where_joined(own);
        if (!place)
            place = own;
        else if (buffer && !buffer->pack && buffer != where_joined(place) &&
                 !(buffer->ranks & where_joined(place)->ranks))
            join_buffers(buffer, place);
    }
    return place;
}

/* --- Calls: frames inside frames --------------------------------------------------------------- */

/* The packs that f's caller has placed as such, or that f places itself. */
Pack *placeable(const Module *m, Pack *list)
{
    Pack *kept = NULL;
    for (Pack *pack = list, *next; pack; pack = next) {
        next = pack->next;
        if (how_placed(m, pack) != PLACED_OTHERWISE)
            pack->next = kept, kept = pack;
    }
    return kept;
}

void note_packs(Frame *frame)
{
    frame->pack_of.arena = &frame->m->arena;
    for (Pack *pack = frame->packs; pack; pack = pack->next)
        for (int i = 0; i < pack->count; i++)
            if (!map_get(&frame->pack_of, pack->member[i]))
                map_put(&frame->pack_of, pack->member[i], pack);
}

const Pack *pack_of(const Frame *frame, const Value *value) { return map_get(&frame->pack_of, value); }

/* The storage of a value of the caller, as far as known: for members of a pack, relative to the pack. */
static Storage *layout_of(const Frame *frame, const Value *value)
{
    const Pack *pack = pack_of(frame, value);
    if (value->storage)
        return value->storage;
    return pack ? pack_storage(frame->m, pack, member_of(pack, value), 0) : NULL;
}

/* Places `there`, of the callee, which is `here`, of the caller, or a slice of it: by that pointer, with the strides of
 * `here`.  Members of a pack have one pointer, that of the first; but what a loop carries leaves the pack after the
 * first iteration. */
static void place_pointer(const Frame *frame, Value *there, const Value *here, int pointer, const Values *callees,
                          const Values *callers, bool is_carried)
{
    const Pack *pack = is_carried ? NULL : pack_of(frame, here);
    const Storage *known = layout_of(frame, here);
    there->storage = new_pointer(frame->m, &there->type, pointer);
    int skipped = here->type.rank - there->type.rank;
    for (int i = 0; i < there->type.rank && known; i++)
        there->storage->stride[i] = known->stride[i + skipped];
    if (!pack)
        return;
    for (int i = 0; i < callers->count && callers->at[i] != here; i++)
        if (member_of(pack, callers->at[i]) >= 0) {
            const Storage *first = callees->at[i]->storage;
            int64_t from = pack_offset(frame->m, pack, member_of(pack, callers->at[i]));
            there->storage->pointer = first->pointer;
            there->storage->at = pack_offset(frame->m, pack, member_of(pack, here)) - from + first->at;
            return;
        }
}

/* The parameter with the storage of the caller's result i; NULL: none. */
static Value *param_in_place(const Func *f, const Op *call, int i)
{
    for (int j = (int)call->attrs.carried; j < f->params.count; j++)
        if (have_same_address(arg(call, j), call->results.at[i]))
            return f->params.at[j];
    return NULL;
}

/* The parameter that f writes its result i over, if the op that computes it is the last reader of the parameter; NULL:
 * none. */
static Value *returned_over(Frame *frame, const Func *f, const Op *call, int i)
{
    Value *value = f->results.at[i], *param = i < call->attrs.carried ? f->params.at[i] : param_in_place(f, call, i);
    bool is_over = param && may_return_over(frame->m, &frame->lifetimes, f, value, param);
    for (const Value *sum = value; is_over && sum; sum = sum_between(frame->m, &frame->lifetimes, f, sum, param))
        is_over = !map_get(frame->apart, sum->def);
    return is_over && index_of(&f->results, param) < 0 ? param : NULL;
}

/* What becomes of a parameter, before the result is written over that, lies there. */
static void place_between(Frame *frame, const Func *f, const Value *result, const Value *param)
{
    Value *sum = sum_between(frame->m, &frame->lifetimes, f, result, param);
    for (; sum; sum = sum_between(frame->m, &frame->lifetimes, f, sum, param)) {
        sum->storage = new_pointer(frame->m, &sum->type, param->storage->pointer);
        *sum->storage = *param->storage;
    }
}

/* The pointer numbers of a called function: parameters, results.  A result has the number of the parameter that it
 * updates or overwrites; what is carried in place lies where the loop's results are. */
static void number_pointers(Frame *frame, Func *f, const Op *call)
{
    Module *m = frame->m;
    int pointer = 0;
    for (int i = 0; i < f->params.count; i++) {
        const bool is_carried = i < call->attrs.carried, stays = is_carried && returned_over(frame, f, call, i);
        const Values *callers = stays ? &call->results : &call->args;
        place_pointer(frame, f->params.at[i], callers->at[i], pointer++, &f->params, callers, is_carried && !stays);
    }
    for (int i = 0; i < f->results.count; i++, pointer++) {
        Value *value = f->results.at[i], *param = returned_over(frame, f, call, i);
        if (param)
            value->storage = new_pointer(m, &value->type, param->storage->pointer);
        else
            place_pointer(frame, value, call->results.at[i], pointer, &f->results, &call->results, false);
        if (param && same_dims(&value->type, &param->type)) /* of a pack, perhaps */
            *value->storage = *param->storage;
        if (param)
            place_between(frame, f, value, param);
        place_started(value);
    }
}

static int64_t bytes_beside_results(Frame *frame, Op *op)
{
    Module *m = frame->m;
    Func *callee = function_called_by(m, op);
    if (!callee)
        return scratch_bytes(m, frame->scratch, op);
    number_pointers(frame, callee, op);
    place_in_results(m, callee, frame->apart);
    Frame inner = { .m = m,
                    .f = callee,
                    .buffer.arena = &m->arena,
                    .lifetimes.arena = &m->arena,
                    .apart = frame->apart,
                    .scratch = frame->scratch,
                    .far = frame->far,
                    .packs = placeable(m, find_packs(m, callee, frame->apart)) };
    plan_frame(&inner);
    if (is_scheduled(op))
        op->attrs.slots = plan_slots(m, op)->bytes;
    return aligned_bytes(callee->frame) + iteration_buffers(m, op, callee);
}

/* --- Placing ------------------------------------------------------------------------------- */

static int larger_first(const void *a, const void *b)
{
    const Buffer *x = *(Buffer *const *)a, *y = *(Buffer *const *)b;
    if (x->is_placed != y->is_placed)
        return y->is_placed - x->is_placed;
    if (x->has_slots != y->has_slots)
        return x->has_slots - y->has_slots;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->first != y->first ? x->first - y->first : x->last - y->last;
}

/* Is there a time at which both are in use? */
static bool are_together(const Buffer *a, const Buffer *b)
{
    return (a->first <= b->last && b->first <= a->last) || a->first <= b->until || b->first <= a->until ||
           (a->until >= 0 && b->until >= 0);
}

/* What has slots last, since ranks leave it out; the largest first, each at the lowest address not used by a buffer
 * with an overlapping lifetime. */
static int64_t place_buffers(Frame *frame)
{
    Buffer **all = NEW_ARRAY(&frame->m->arena, Buffer *, frame->nbuffers + 1);
    Buffer **placed = NEW_ARRAY(&frame->m->arena, Buffer *, frame->nbuffers + 1); /* the lowest first */
    int n = 0;
    int64_t end = 0;
    for (Buffer *buffer = frame->buffers; buffer; buffer = buffer->next)
        if (!buffer->joined)
            all[n++] = buffer;
    qsort(all, (size_t)n, sizeof *all, larger_first);
    for (int i = 0; i < n; i++) {
        int64_t at = all[i]->is_placed ? all[i]->at : 0;
        for (int j = 0; !all[i]->is_placed && j < i && at + all[i]->bytes > placed[j]->at; j++)
            if (are_together(placed[j], all[i]))
                at = at > placed[j]->at + placed[j]->bytes ? at : placed[j]->at + placed[j]->bytes;
        all[i]->at = at;
        int place = i;
        for (; place > 0 && placed[place - 1]->at > at; place--)
            placed[place] = placed[place - 1];
        placed[place] = all[i];
        end = end > at + all[i]->bytes ? end : at + all[i]->bytes;
    }
    return end;
}

/* One buffer for all members; its lifetime starts with the first of them. */
static Buffer *buffer_of_pack(Frame *frame, const Pack *pack, int number)
{
    for (int i = 0; i < pack->count; i++)
        if (buffer_of(frame, pack->member[i]))
            return buffer_of(frame, pack->member[i]);
    Buffer *buffer = new_buffer(frame, pack_bytes(frame->m, pack), number, number);
    buffer->pack = pack;
    return buffer;
}

/* The number of the operand that result i of a call begins as, and is written over; -1: none. */
static int begins_as(Frame *frame, const Op *op, int number, int i)
{
    const bool is_carried = i < op->attrs.carried;
    const int first = is_carried ? i : (int)op->attrs.carried, end = is_carried ? i + 1 : op->args.count;
    for (int at = first; at < end; at++)
        if (dying_operand(frame, op, number, i, at))
            return at;
    return -1;
}

/* The buffer of another whole pack in which all members of this one begin, each at its place; NULL: they do not. */
static Buffer *begun_as_pack(Frame *frame, const Op *op, int number, const Pack *pack)
{
    Buffer *begun = NULL;
    for (int i = 0; i < pack->count; i++) {
        const int result = index_of(&op->results, pack->member[i]);
        const int at = result >= 0 ? begins_as(frame, op, number, result) : -1;
        Buffer *own = at >= 0 ? buffer_of(frame, arg(op, at)) : NULL;
        if (!own || !own->pack || own->pack == pack || (begun && own != begun) ||
            offset_in_buffer(frame, arg(op, at)) != pack_offset(frame->m, pack, i))
            return NULL;
        begun = own;
    }
    return begun->bytes <= aligned_bytes(pack_bytes(frame->m, pack)) ? begun : NULL;
}

/* The place of result i in its pack.  What it begins as is there, too. */
static Buffer *place_in_pack(Frame *frame, const Op *op, int number, int i, int begin)
{
    const Value *value = op->results.at[i];
    const Pack *pack = pack_of(frame, value);
    Buffer *all = buffer_of_pack(frame, pack, begin), *place = all;
    if (!pack->whole)
        return all;
    Buffer *begun = begun_as_pack(frame, op, number, pack);
    if (begun)
        join_buffers(begun, all);
    const int at = begins_as(frame, op, number, i);
    Buffer *initial = at >= 0 ? buffer_of(frame, arg(op, at)) : NULL;
    place = NEW(&frame->m->arena, Buffer);
    *place = (Buffer){ .at = pack_offset(frame->m, pack, member_of(pack, value)), .joined = all };
    if (initial && !initial->pack)
        join_buffers(initial, place);
    return place;
}

/* The number of later ops that the target may run at the same time. */
static int ops_that_keep_scratch(Module *m, const Op *op)
{
    return function_called_by(m, op) ? 0 : m->target->scratch_stays(m, op);
}

static void find_buffers(Frame *frame)
{
    int number = 0, micros = 0; /* the loop that early ops run in */
    Map *map = &frame->buffer;
    for (Op *op = frame->f->first; op; op = op->next, number++) {
        micros = is_scheduled(op) ? number : micros;
        if (is_program(frame->f) && info(op)->traits & FOLDS && !arg(op, 0)->def)
            place_view(frame->m, op); /* what a loop writes over it takes its place */
        const int begin = op->attrs.early ? micros : number;
        int64_t beside = bytes_beside_results(frame, op);
        if (beside)
            map_put(map, op, new_buffer(frame, beside, number, number + ops_that_keep_scratch(frame->m, op)));
        for (int i = 0; i < op->results.count; i++) {
            Value *value = op->results.at[i];
            int last = later(&frame->last, value, -1);
            if (value->storage) /* a pointer, or state */
                continue;
            Buffer *place = info(op)->family == VIEW   ? buffer_of(frame, arg(op, 0))
                            : pack_of(frame, value)    ? place_in_pack(frame, op, number, i, begin)
                            : info(op)->traits & JOINS ? buffer_of_joined(frame, op, number)
                                                       : operands_place(frame, op, number, i);
            if (!place && info(op)->family != VIEW)
                place = new_buffer(frame, local_bytes(frame->m, &value->type), begin, begin);
            if (!place) /* a view of a pointer */
                continue;
            Buffer *buffer = where_joined(place);
            buffer->last = last > buffer->last ? last : buffer->last;
            buffer->ranks |= ranks_written(frame->m, value);
            buffer->has_slots = is_action_call(op);
            map_put(map, value, place);
        }
    }
}

Storage *place_member(Module *m, const Pack *pack, const Value *value, int64_t at)
{
    int number = member_of(pack, value);
    return pack_storage(m, pack, number, at + pack_offset(m, pack, number));
}

void plan_frame(Frame *frame)
{
    frame->last = last_uses(&frame->m->arena, frame->f);
    note_packs(frame);
    *frame->far = place_far_results(frame->m, frame->f, *frame->far);
    frame->left.arena = &frame->m->arena;
    if (frame->f->role == STEP)
        note_left(&frame->left, frame->f);
    find_buffers(frame);
    hold_left(frame);
    frame->f->frame = place_buffers(frame);
    place_left(frame);
    for (Op *op = frame->f->first; op; op = op->next) {
        const Buffer *beside = buffer_of(frame, op);
        if (beside)
            op->attrs.frame = frame->base + beside->at;
        for (int i = 0; i < op->results.count; i++) {
            Value *value = op->results.at[i];
            const Buffer *buffer = buffer_of(frame, value);
            if (info(op)->family == VIEW)
                place_view(frame->m, op);
            else if (!value->storage && buffer->pack && !buffer->pack->whole)
                value->storage = place_member(frame->m, buffer->pack, value, frame->base + buffer->at);
            else if (!value->storage)
                value->storage =
                    new_storage(frame->m, &value->type, frame->base + buffer->at + offset_in_buffer(frame, value));
        }
    }
}
