/* stage_read.c -- reads from a module with stages how what their actions cost and keep depends on sizes: see
 * sized_read.c. */
#include "micro.h"
#include "sized_read.h"
#include "storage.h"

static ActionKind last_reader(const MicroParts *micro, const Value *value)
{
    ActionKind read = FORWARD_ACTION;
    for (int i = 0; i < micro->count; i++)
        if (index_of(&micro->part[i].call->args, value) >= 0)
            read = micro->part[i].kind;
    return read;
}

/* Has the result memory of its own between the actions? */
static bool is_slot(const Op *call, int result)
{
    const Storage *storage = call->results.at[result]->storage;
    bool is_first = storage->base == IN_FRAME;
    for (int i = 0; i < result; i++) {
        const Storage *other = call->results.at[i]->storage;
        is_first &= other->base != IN_FRAME || other->at != storage->at;
    }
    return is_first;
}

static KeptKind kept_as(ActionKind made, ActionKind read)
{
    return made == BACKWARD_ACTION ? FROM_BACKWARD : read == BACKWARD_ACTION ? FOR_BACKWARD : FOR_WEIGHTS;
}

/* What a micro-batch keeps of each copy of a repeat on the first stage, whose number of copies the types have as local
 * size. */
static void read_slots(Reader *r, const MicroParts *micro, KeptKind kind, int repeat)
{
    for (int made = 0; made < micro->count; made++)
        for (int i = 0; i < micro->part[made].call->results.count; i++) {
            const StagePart *part = &micro->part[made];
            const Value *value = part->call->results.at[i];
            const int copies = r->copies[repeat] ? find_dim(&value->type, r->copies[repeat]) : -1;
            const ActionKind read = last_reader(micro, value);
            if (copies < 0 || !is_slot(part->call, i) || part->kind == read || kept_as(part->kind, read) != kind)
                continue;
            const double of_stage = (double)local_size(r->m, &value->type.dim[copies]);
            if (of_stage > 0)
                add_term(r, &r->s->kept[kind][repeat], (double)local_bytes(r->m, &value->type) / of_stage,
                         scale_of_type(r, &value->type));
        }
}

void read_scheduled(Reader *r)
{
    const PipelineSchedule *schedule = r->cost.schedule;
    const int stage[2] = { 0, stage_count(schedule) - 1 };
    const Op *loop = micro_loop(r->m);
    MicroParts micro;
    if (schedule->splits_backward && loop && find_parts(r->m, find_func(r->m, loop->attrs.callee), &micro))
        for (KeptKind kind = 0; kind < N_KEPT; kind++)
            for (int repeat = 0; repeat < MAX_REPEATS; repeat++)
                read_slots(r, &micro, kind, repeat);
    for (int list = 0; list < MOST_LISTS; list++)
        number_list(r, &r->cost.action[list / 2][stage[list % 2]], rank_of_stage(schedule, stage[list % 2]));
    probe_sizes(r);
    for (int list = 0; list < MOST_LISTS; list++)
        r->s->list[list] = read_items(r, &r->cost.action[list / 2][stage[list % 2]]);
}
