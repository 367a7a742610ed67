/* slots.c -- what the micro-batches of a pipeline keep in memory between their actions.
 *
 * The results of a micro-batch's halves, see passes/layout/pipeline.c, are in slots after the frame of the loop:
 *
 *   enters a stage   from its message until the action that reads it: as many as messages are unread at most
 *   leaves a stage   until it is sent: of the forward pass, until the gradient is back, at most
 *   other            from the forward to the backward action: as many as micro-batches are in flight at most
 */
#include "slots.h"

#include "stages.h"
#include "storage.h"

static const char *const schedule_name[] = {
    [STAGES_NAIVE] = "naive", [STAGES_GPIPE] = "gpipe", [STAGES_ONE_F_ONE_B] = "1f1b"
};

PipelineSchedule *schedule_of_loop(Module *m, const Op *loop, StageSchedule name)
{
    const char *why = NULL, *help = NULL;
    const int ranks = (int)m->axis_size[pipeline_axis(m)];
    PipelineSchedule *s =
        make_schedule(&m->arena, schedule_name[name], ranks, 1, (int)loop->attrs.dims.dim[0].size, &why, &help);
    if (s && order_messages(&m->arena, s, &why) && certify_schedule(&m->arena, s, &why))
        return s;
    error_at(m->diags, (Where){ .at = loop->loc, .help = help }, "the schedule %s: %s", schedule_name[name], why);
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

/* Does the i-th result of a half have a slot for each micro-batch in flight? */
static bool is_in_flight(const Func *half, const Op *call, int i)
{
    const Op *loop = stage_loop(half);
    const bool backward = loop->attrs.reverse > 0;
    if (enters_stage(half, i))
        return !backward && call->next && is_read_by(call->next, call->results.at[i]);
    return !backward || !is_carried(loop, &loop->results, half->results.at[i]);
}

/* How many slots a stage needs of it. */
static int slots_needed(const PipelineSchedule *s, const Func *half, const Op *call, int i, int stage)
{
    const bool backward = stage_loop(half)->attrs.reverse > 0;
    const int held = is_in_flight(half, call, i) ? s->activations[stage] : 0;
    if (enters_stage(half, i))
        return at_least_one(s->received[backward][stage] + held);
    return at_least_one(held ? held : s->micros > 1 ? 2 : 1);
}

static void add_rings(Module *m, PipelineSlots *all, const Op *call)
{
    const Func *half = find_func(m, call->attrs.callee);
    for (int i = 0; i < call->results.count; i++) {
        const Value *value = call->results.at[i];
        if (value->storage && value->storage->base != IN_FRAME)
            continue;
        Ring *ring = &all->ring[all->nrings++];
        *ring = (Ring){ .value = value,
                        .bytes = aligned_bytes(local_bytes(m, &value->type)),
                        .in_flight = is_in_flight(half, call, i) };
        ring->slots = NEW_ARRAY(&m->arena, int, all->schedule->ranks);
        int most = 0;
        for (int stage = 0; stage < all->schedule->ranks; stage++) {
            ring->slots[stage] = slots_needed(all->schedule, half, call, i, stage);
            most = most > ring->slots[stage] ? most : ring->slots[stage];
        }
        ring->offset = all->bytes;
        all->bytes += most * ring->bytes;
    }
}

const PipelineSlots *pipeline_slots(Module *m, const Op *loop)
{
    const Func *micro = find_func(m, loop->attrs.callee);
    if (m->slots && m->slots->loop == loop)
        return m->slots;
    PipelineSlots *all = m->slots = NEW(&m->arena, PipelineSlots);
    all->loop = loop;
    all->schedule = schedule_of_loop(m, loop, loop->attrs.stages);
    int most = 0;
    for (const Op *op = micro->first; op; op = op->next)
        most += op->results.count;
    all->ring = NEW_ARRAY(&m->arena, Ring, most + 1);
    for (const Op *op = micro->first; op && all->schedule; op = op->next)
        if (op->attrs.stages)
            add_rings(m, all, op);
    return all;
}

int ring_of(const PipelineSlots *slots, const Value *value)
{
    for (int i = 0; i < slots->nrings; i++)
        if (slots->ring[i].value == value)
            return i;
    return -1;
}
