/* plant_schedule.c -- faults in how micro-batches of a pipeline are interleaved: slots, events, what belongs to which
 * action.  The plain loop over micro-batches does not show any of them. */
#include "micro.h"
#include "plant.h"
#include "ranks.h"
#include "schedule/slots.h"
#include "storage.h"

/* --- Slots ------------------------------------------------------------------------------------------------ */

static bool is_placed_part(const Op *op)
{
    return op->attrs.stages && !op->attrs.dims.count && op->results.count && result(op)->storage;
}

static MicroSlots *slots_of(Module *m)
{
    slots_of_loop(m, micro_loop(m));
    return m->slots;
}

/* Does the part compute with the value, and not only receive it? */
static bool computes_with(const Module *m, const Op *call, const Value *value)
{
    const Func *part = find_func(m, call->attrs.callee);
    const int i = index_of(&call->args, value);
    for (const Op *op = i >= 0 ? part->first : NULL; op; op = op->next)
        if (!is_send(op) && index_of(&op->args, part->params.at[i]) >= 0)
            return true;
    return false;
}

/* Does a later action of the stage on that rank read the value?  Positions and masks of them, which do not depend on
 * the micro-batch, do not count. */
static bool is_kept(const Module *m, const Op *call, const Value *value, int rank)
{
    const bool differs = is_float(value->type.dtype) && is_on(value->type.on, rank);
    for (const Op *later = differs ? call->next : NULL; later; later = later->next)
        if (computes_with(m, later, value))
            return true;
    return false;
}

/* The first ring from `from` on with something of the part that a rank keeps, in several slots; -1: none. */
static int kept_ring(const Module *m, const MicroSlots *slots, const Op *call, int from, int *rank)
{
    for (int i = from; i < slots->nrings; i++)
        for (*rank = 0; *rank < slots->schedule->ranks; ++*rank)
            if (slots->ring[i].call == call && slots->ring[i].slots[*rank] > 1 &&
                is_kept(m, call, slots->ring[i].value, *rank))
                return i;
    return -1;
}

static bool keeps(Module *m, Func *f, Op *op)
{
    int rank;
    return is_placed_part(op) && kept_ring(m, slots_of(m), op, 0, &rank) >= 0;
}

static bool keeps_two(Module *m, Func *f, Op *op)
{
    int rank;
    return keeps(m, f, op) && kept_ring(m, slots_of(m), op, kept_ring(m, slots_of(m), op, 0, &rank) + 1, &rank) >= 0;
}

static bool lose_slot(Module *m, Func *f, Op *op)
{
    int rank;
    const int ring = kept_ring(m, slots_of(m), op, 0, &rank);
    slots_of(m)->ring[ring].slots[rank]--;
    return true;
}

static bool narrow_slots(Module *m, Func *f, Op *op)
{
    int rank;
    Ring *ring = &slots_of(m)->ring[kept_ring(m, slots_of(m), op, 0, &rank)];
    ring->bytes = (ring->end - ring->begin) / 2;
    return true;
}

static bool share_slots(Module *m, Func *f, Op *op)
{
    int rank;
    const int one = kept_ring(m, slots_of(m), op, 0, &rank), other = kept_ring(m, slots_of(m), op, one + 1, &rank);
    slots_of(m)->ring[other].offset = slots_of(m)->ring[one].offset;
    return true;
}

/* Two results of one type that one rank keeps; or two operands. */
static bool find_alike(Module *m, const Op *op, const Values *outside, const Values *inside, Storage *alike[2])
{
    for (int i = 0; i < outside->count; i++)
        for (int j = 0; j < i; j++) {
            const Value *a = outside->at[i], *b = outside->at[j];
            if (!type_equal(&a->type, &b->type) || a->storage->base == BY_POINTER || b->storage->base == BY_POINTER ||
                (outside == &op->results && (!is_kept(m, op, a, 0) || !is_kept(m, op, b, 0))))
                continue;
            alike[0] = inside->at[i]->storage;
            alike[1] = inside->at[j]->storage;
            return true;
        }
    return false;
}

static bool find_alike_results(Module *m, const Op *op, Storage *alike[2])
{
    return is_placed_part(op) && find_alike(m, op, &op->results, &find_func(m, op->attrs.callee)->results, alike);
}

static bool find_alike_operands(Module *m, const Op *op, Storage *alike[2])
{
    return is_placed_part(op) && find_alike(m, op, &op->args, &find_func(m, op->attrs.callee)->params, alike);
}

static bool writes_alike(Module *m, Func *f, Op *op) { return find_alike_results(m, op, (Storage *[2]){ NULL }); }
static bool reads_alike(Module *m, Func *f, Op *op) { return find_alike_operands(m, op, (Storage *[2]){ NULL }); }

static bool exchange(Storage *alike[2])
{
    const Storage first = *alike[0];
    *alike[0] = *alike[1];
    *alike[1] = first;
    return true;
}

static bool write_exchanged(Module *m, Func *f, Op *op)
{
    Storage *alike[2];
    return find_alike_results(m, op, alike) && exchange(alike);
}

static bool read_exchanged(Module *m, Func *f, Op *op)
{
    Storage *alike[2];
    return find_alike_operands(m, op, alike) && exchange(alike);
}

/* What the loop in stages of a part carries: the message that it reads, and the one that it leaves. */
static bool carries(Module *m, Func *f, Op *op)
{
    return is_placed_part(op) && part_called(&slots_of(m)->parts, op)->loop[0]->attrs.carried;
}

static bool exchange_messages(Module *m, Func *f, Op *op)
{
    const Op *loop = part_called(&slots_of(m)->parts, op)->loop[0];
    return exchange((Storage *[2]){ arg(loop, 0)->storage, result(loop)->storage });
}

/* --- Events ----------------------------------------------------------------------------------------------- */

static bool has_schedule(Module *m, Func *f, Op *op)
{
    return op->attrs.stages && op->attrs.dims.count && op->results.at[0]->storage;
}

static bool receives(const Event *e) { return e->is_message && !e->sends; }

/* The action that reads what arrives in it. */
static bool reads_message(const Event *e, const Event *message)
{
    const Message *m = &message->message;
    return !e->is_message && e->action.kind == (m->backward ? BACKWARD_ACTION : FORWARD_ACTION) &&
           e->action.stage == m->stage + (m->backward ? -1 : 1) && e->action.micro == m->micro;
}

/* Behind the action that reads it. */
static bool receive_late(Module *m, Func *f, Op *op)
{
    const PipelineSchedule *s = slots_of(m)->schedule;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0, j; i < s->nevents[rank]; i++) {
            Event *event = s->event[rank];
            const Event moved = event[i];
            for (j = i + 1; receives(&moved) && j < s->nevents[rank]; j++) {
                event[j - 1] = event[j];
                event[j] = moved;
                if (reads_message(&event[j - 1], &moved))
                    return true;
            }
        }
    return false;
}

static bool is_like(const Event *a, const Event *b)
{
    if (a->is_message != b->is_message)
        return false;
    if (a->is_message)
        return a->sends == b->sends && a->message.backward == b->message.backward &&
               a->message.stage == b->message.stage;
    return a->action.kind == b->action.kind && a->action.stage == b->action.stage;
}

static int *micro_of(Event *e) { return e->is_message ? &e->message.micro : &e->action.micro; }

/* The last two of those events: their micro-batches trade places. */
static bool trade(const PipelineSchedule *s, int rank, const Event *like)
{
    Event *last = NULL;
    for (int i = s->nevents[rank] - 1; i >= 0; i--) {
        Event *e = &s->event[rank][i];
        if (!is_like(e, like))
            continue;
        if (last) {
            const int micro = *micro_of(e);
            *micro_of(e) = *micro_of(last);
            *micro_of(last) = micro;
            return true;
        }
        last = e;
    }
    return false;
}

/* On both sides. */
static bool trade_messages(Module *m, Func *f, Op *op)
{
    const PipelineSchedule *s = slots_of(m)->schedule;
    for (int i = 0; i < s->nevents[0]; i++) {
        Event like = s->event[0][i];
        if (!like.is_message)
            continue;
        const int to = like.message.stage + (like.message.backward ? -1 : 1);
        const int other = rank_of_stage(s, like.sends ? to : like.message.stage);
        if (!trade(s, 0, &like))
            return false;
        like.sends = !like.sends;
        return trade(s, other, &like);
    }
    return false;
}

static bool trade_actions(Module *m, Func *f, Op *op)
{
    const PipelineSchedule *s = slots_of(m)->schedule;
    const Event like = { .action = { .kind = BACKWARD_ACTION, .stage = stage_on_rank(s, s->ranks - 1, 0) } };
    return trade(s, s->ranks - 1, &like);
}

/* --- Parts ------------------------------------------------------------------------------------------------ */

/* The last action of a micro-batch is that of the one before, and the other way round. */
static bool trade_parts(Module *m, Func *f, Op *op)
{
    MicroSlots *slots = slots_of(m);
    StagePart *one = &slots->parts.part[slots->parts.count - 1], *other = one - 1;
    const StagePart kept = *one;
    one->kind = other->kind, one->chunk = other->chunk;
    other->kind = kept.kind, other->chunk = kept.chunk;
    return true;
}

/* Of a program that is cut in parts, but not placed yet: a sum of all stages that an earlier part could
 * read, too. */
static Value *sum_of_part(const Module *m, const Op *op)
{
    const Op *loop = micro_loop(m);
    const Func *micro = loop ? find_func(m, loop->attrs.callee) : NULL;
    for (int i = 0; micro && op->prev && op->attrs.stages && !op->attrs.dims.count && i < op->args.count; i++) {
        const int sum = index_of(&micro->params, arg(op, i));
        if (sum >= 0 && sum < loop->attrs.carried && !arg(op, i)->storage && !arg(op, i)->type.on.at &&
            micro->results.at[sum]->def == op)
            return arg(op, i);
    }
    return NULL;
}

static bool adds_late(Module *m, Func *f, Op *op) { return sum_of_part(m, op) != NULL; }

/* The part before copies it: in its action, micro-batches before may not have been added yet. */
static bool read_early(Module *m, Func *f, Op *op)
{
    Value *sum = sum_of_part(m, op);
    Op *before = op->prev;
    Func *part = find_func(m, before->attrs.callee);
    Value *param = add_param(m, part, fresh_name(m), sum->type), *copy = NEW(&m->arena, Value);
    Builder b = builder_at(m, part, NULL);
    push_value(&m->arena, &before->args, sum);
    push_value(&m->arena, &part->results, BUILD(&b, OP_reorder, NO_ATTRS, param));
    *copy = (Value){ .name = fresh_name(m), .type = sum->type, .def = before };
    push_value(&m->arena, &before->results, copy);
    replace_value(&op->args, sum, copy);
    return true;
}

static const Plant plants[] = {
    { 'r', "a value has a slot less than micro-batches keep it", keeps, lose_slot },
    { 'r', "slots of a value lie over each other", keeps, narrow_slots },
    { 'r', "two values have the same slots", keeps_two, share_slots },
    { 'r', "an action writes two values into each other's slots", writes_alike, write_exchanged },
    { 'r', "an action reads two values from each other's slots", reads_alike, read_exchanged },
    { 'r', "a message is sent from the slot of the one that arrives", carries, exchange_messages },
    { 's', "an action does not wait for its message", has_schedule, receive_late },
    { 's', "two micro-batches send each other's message", has_schedule, trade_messages },
    { 's', "two micro-batches do each other's action", has_schedule, trade_actions },
    { 's', "two actions do each other's part", has_schedule, trade_parts },
    { 's', "a sum is read in the part of an earlier action", adds_late, read_early },
};
const PlantList plants_of_schedules = { sizeof plants / sizeof *plants, plants };
