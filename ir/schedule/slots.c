/* slots.c -- what the micro-batches of a pipeline keep in memory between their actions.
 *
 * The results of a micro-batch's halves, see passes/layout/pipeline.c, are in slots after the frame of the loop:
 *
 *   enters a stage   from its message until the action that reads it: as many as messages are unread at most
 *   leaves a stage   until it is sent: of the forward pass, until the gradient is back, at most
 *   other            from the forward to the last backward action, or from B to W: as many as are in between at most
 */
#include "slots.h"

#include "stages.h"
#include "storage.h"

static const char *const schedule_name[] = {
    [STAGES_NAIVE] = "naive", [STAGES_GPIPE] = "gpipe", [STAGES_ONE_F_ONE_B] = "1f1b", [STAGES_ZB_H1] = "zb-h1"
};

/* The user's table; its errors are those of its file. */
static PipelineSchedule *read_table(Module *m, int ranks, int micros)
{
    Diags diags = { .arena = &m->arena, .source = m->table, .out = m->diags->out };
    PipelineSchedule *s = read_schedule(&m->arena, &diags, ranks, 1, micros);
    m->diags->errors += diags.errors;
    return s;
}

PipelineSchedule *schedule_of_loop(Module *m, const Op *loop, StageSchedule name)
{
    const Loc loc = loop ? loop->loc : (Loc){ 0 };
    if (name == STAGES_TABLE && !m->table) {
        error_at(m->diags, (Where){ .at = loc }, "the schedule is a table, and the module has none");
        return NULL;
    }
    const char *why = NULL, *help = NULL, *called = name == STAGES_TABLE ? m->table->path : schedule_name[name];
    const int ranks = (int)m->axis_size[pipeline_axis(m)], micros = loop ? (int)loop->attrs.dims.dim[0].size : 1;
    PipelineSchedule *s = name == STAGES_TABLE ? read_table(m, ranks, micros)
                                               : make_schedule(&m->arena, called, ranks, 1, micros, &why, &help);
    if (s && order_messages(&m->arena, s, &why) && certify_schedule(&m->arena, s, &why))
        return s;
    if (why)
        error_at(m->diags, (Where){ .at = loc, .help = help }, "the schedule %s: %s", called, why);
    return NULL;
}

const Op *stage_loop(const Func *half)
{
    const Op *op = half->first;
    while (op && !runs_in_stages(op))
        op = op->next;
    return op;
}

static bool is_read_by(const Op *call, const Value *value) { return index_of(&call->args, value) >= 0; }

static int at_least_one(int count) { return count > 1 ? count : 1; }

static bool is_carried(const Op *loop, const Values *list, const Value *value)
{
    const int i = index_of(list, value);
    return i >= 0 && i < loop->attrs.carried;
}

static bool enters_stage(const Func *half, int i)
{
    const Op *loop = stage_loop(half);
    return is_carried(loop, &loop->args, half->results.at[i]);
}

static bool is_read_later(const Op *call, const Value *value)
{
    for (const Op *later = call->next; later; later = later->next)
        if (is_read_by(later, value))
            return true;
    return false;
}

/* Does the i-th result of a half have a slot for each micro-batch in flight? */
static bool is_in_flight(const Func *half, const Op *call, int i)
{
    const Op *loop = stage_loop(half);
    const bool backward = loop->attrs.reverse > 0;
    if (enters_stage(half, i))
        return !backward && is_read_later(call, call->results.at[i]);
    return !backward || !is_carried(loop, &loop->results, half->results.at[i]);
}

/* Of so many micro-batches a stage keeps it: from F to the last backward action, or from B to W. */
static int held_micros(const PipelineSchedule *s, const Func *half, const Op *call, int i, int stage)
{
    if (!is_in_flight(half, call, i))
        return 0;
    return stage_loop(half)->attrs.reverse ? s->deferred[stage] : s->activations[stage];
}

/* How many slots a stage needs of it. */
static int slots_needed(const PipelineSchedule *s, const Func *half, const Op *call, int i, int stage)
{
    const bool backward = stage_loop(half)->attrs.reverse > 0;
    const int held = held_micros(s, half, call, i, stage);
    if (enters_stage(half, i))
        return at_least_one(s->received[backward][stage] + held);
    return at_least_one(held ? held : s->micros > 1 ? 2 : 1);
}

/* Adds a value of the frame to the ring of those with which it is interleaved, or to a new one. */
static void add_to_ring(Module *m, PipelineSlots *all, const Op *call, int i)
{
    const Value *value = call->results.at[i];
    const int64_t begin = value->storage->at, end = begin + span_bytes(m, value);
    Ring *ring = NULL;
    for (int k = 0; k < all->nrings && !ring; k++)
        if (all->ring[k].call == call && begin < all->ring[k].end && all->ring[k].begin < end)
            ring = &all->ring[k];
    if (!ring) {
        ring = &all->ring[all->nrings++];
        *ring = (Ring){ .call = call, .value = value, .begin = begin, .end = end };
        ring->slots = NEW_ARRAY(&m->arena, int, all->schedule->ranks);
    }
    ring->begin = begin < ring->begin ? begin : ring->begin;
    ring->end = end > ring->end ? end : ring->end;
    ring->in_flight |= is_in_flight(find_func(m, call->attrs.callee), call, i) &&
                       !stage_loop(find_func(m, call->attrs.callee))->attrs.reverse;
    for (int stage = 0; stage < all->schedule->ranks; stage++) {
        const int needed = slots_needed(all->schedule, find_func(m, call->attrs.callee), call, i, stage);
        ring->slots[stage] = needed > ring->slots[stage] ? needed : ring->slots[stage];
    }
}

static void place_rings(PipelineSlots *all)
{
    for (int i = 0; i < all->nrings; i++) {
        Ring *ring = &all->ring[i];
        int most = 0;
        for (int stage = 0; stage < all->schedule->ranks; stage++)
            most = most > ring->slots[stage] ? most : ring->slots[stage];
        ring->bytes = aligned_bytes(ring->end - ring->begin);
        ring->offset = all->bytes;
        all->bytes += most * ring->bytes;
    }
}

const PipelineSlots *pipeline_slots(Module *m, const Op *loop)
{
    return m->slots && m->slots->loop == loop ? m->slots : plan_slots(m, loop);
}

const PipelineSlots *plan_slots(Module *m, const Op *loop)
{
    const Func *micro = find_func(m, loop->attrs.callee);
    PipelineSlots *all = m->slots = NEW(&m->arena, PipelineSlots);
    all->loop = loop;
    all->schedule = schedule_of_loop(m, loop, loop->attrs.stages);
    int most = 0;
    for (const Op *op = micro->first; op; op = op->next)
        most += op->results.count;
    all->ring = NEW_ARRAY(&m->arena, Ring, most + 1);
    for (const Op *op = micro->first; op && all->schedule; op = op->next)
        for (int i = 0; i < op->results.count && op->attrs.stages; i++)
            if (op->results.at[i]->storage->base == IN_FRAME)
                add_to_ring(m, all, op, i);
    place_rings(all);
    return all;
}

int ring_of(const PipelineSlots *slots, const Value *value)
{
    for (int i = 0; i < slots->nrings; i++)
        if (slots->ring[i].call == value->def && slots->ring[i].begin <= value->storage->at &&
            value->storage->at < slots->ring[i].end)
            return i;
    return -1;
}
