/* message_bound.c -- the least time that the messages of a micro-batch take, by arithmetic.
 *
 * A program without data-parallel ranks, a pipeline and recomputation sends what any other program does, too, that
 * splits the same dims along the same axes.  So a few programs serve all meshes.  What grows with the batch counts
 * alone, since gradients of weights may be sent once a step.  Messages may hide behind computation, but within a
 * machine, or between machines, they follow each other. */
#include "room.h"
#include "sized.h"

#include <string.h>

typedef struct MessageTime {
    PlanLayout of;
    PlaceTime time;
    struct MessageTime *next;
} MessageTime;

/* A message of a micro-batch, and how often it is sent. */
typedef struct {
    const SizedItem *item;
    double times;
} Sent;

/* Programs of messages, those of few ranks first: with many, there may be no dims that zero can split. */
typedef struct MessageProgram {
    const Sized *s;
    int count, room;
    Sent *sent;
    struct MessageProgram *next;
} MessageProgram;

static bool grows(const SizedPacking *packing) { return packing->rows.scale.grows || packing->row_bytes.scale.grows; }

static CostItem grown_part(const Sizing *z, const SizedItem *from)
{
    const Sized *s = z->s;
    const Range volume = from->sum[SUM_VOLUME];
    CostItem item = from->item;
    item.volume = item.bytes = 0;
    for (int i = 0; i < volume.count; i++)
        if (s->term[volume.first + i].scale.grows)
            item.volume += sum_of(z, (Range){ volume.first + i, 1 });
    for (int i = 0; i < from->packing.count; i++)
        if (grows(&s->packing[from->packing.first + i]))
            item.bytes += 2 * packed_by(z, &s->packing[from->packing.first + i]);
    return item;
}

static void note_sent(Planner *p, MessageProgram *program, Range items, double times)
{
    for (int i = 0; i < items.count; i++) {
        const SizedItem *item = &program->s->item[items.first + i];
        if (item->item.kind == ITEM_REPEAT)
            note_sent(p, program, item->body, times * item->item.turns);
        if (item->item.kind != ITEM_MESSAGE)
            continue;
        program->sent = room_for(p->arena, program->sent, sizeof(Sent), program->count, 1, &program->room);
        program->sent[program->count++] = (Sent){ item, times };
    }
}

/* The loop that trains on micro-batches: the last one that runs them. */
static Range micro_body(const Sized *s)
{
    Range body = { 0, 0 };
    for (int i = 0; i < s->list[0].count; i++)
        if (s->item[s->list[0].first + i].is_micro)
            body = s->item[s->list[0].first + i].body;
    return body;
}

static int64_t least_divisor(int64_t number)
{
    int64_t divisor = 2;
    while (number % divisor)
        divisor++;
    return divisor;
}

enum { MANY = 2 }; /* sequences: of one alone, dims are moved for nothing */
static const BlockOf summed = { .is_summed = true };

static const MessageProgram *serving(const Planner *p, const PlanLayout *layout)
{
    const PlanProgram key = structure_key(p, layout, summed);
    for (const MessageProgram *known = p->blocks->senders; known; known = known->next)
        if (memcmp(&known->s->key, &key, sizeof key) == 0 && serves_sizes(p, known->s, layout, summed))
            return known;
    return NULL;
}

static const MessageProgram *add_program(Planner *p, const PlanLayout *layout)
{
    MessageProgram *added = NEW(p->arena, MessageProgram), **at = &p->blocks->senders;
    while (*at)
        at = &(*at)->next;
    added->s = find_sized(p, layout, summed);
    *at = added;
    if (!added->s->refused && !added->s->is_irregular)
        note_sent(p, added, micro_body(added->s), 1);
    return added;
}

/* With the least number of ranks to that power along each axis, if there are more. */
static PlanLayout with_few_ranks(const Planner *p, const PlanLayout *layout, int power)
{
    PlanLayout few = *layout;
    for (int i = 0; i < p->naxes; i++)
        if (layout->size[i] > 1) {
            int64_t ranks = least_divisor(layout->size[i]);
            for (int k = 1; k < power && ranks < layout->size[i]; k++)
                ranks *= least_divisor(layout->size[i] / ranks);
            few.size[i] = ranks;
        }
    return few;
}

static const MessageProgram *program_of(Planner *p, const PlanLayout *layout)
{
    const MessageProgram *found = serving(p, layout);
    for (int power = 1; power <= 2 && !found; power++) {
        const PlanLayout few = with_few_ranks(p, layout, power);
        if (!serving(p, &few))
            add_program(p, &few);
        found = serving(p, layout);
    }
    return found ? found : add_program(p, layout);
}

/* layout: of the messages. */
static PlaceTime time_of_messages(Planner *p, const PlanLayout *layout, const PlanLayout *sender, bool gathers)
{
    PlanLayout program = *sender;
    PlaceTime time = { 0 };
    program.microbatch = MANY;
    const MessageProgram *from = program_of(p, &program);
    const RankMesh mesh = mesh_around(p, layout, from->s->naxes, from->s->axis);
    Arena arena = { 0 };
    Sizing sizing;
    start_sizing(&sizing, p, from->s, sender, &arena);
    for (int i = 0; i < from->count; i++) {
        const SizedItem *item = from->sent[i].item;
        if (item->is_of_keys && !gathers)
            continue;
        const Group group = group_in_mesh(p->machine, &mesh, item->item.axes);
        const CostItem grown = grown_part(&sizing, item);
        time.seconds[group.on_one_machine < group.ranks ? OUTSIDE : INSIDE] +=
            from->sent[i].times * sent_seconds(p->machine, &grown, group);
    }
    arena_free(&arena);
    for (int place = 0; place < N_PLACES; place++)
        time.seconds[place] *= JOINED_SHARE;
    return time;
}

/* The layout without what makes no difference to the messages of a micro-batch but where ranks are. */
static PlanLayout sender_of(const Planner *p, const PlanLayout *layout)
{
    PlanLayout sender = { .microbatch = layout->microbatch, .recompute = RECOMPUTE_NONE, .chunks = 1 };
    sender.zero = sums_late(p, layout);
    for (int i = 0; i < p->naxes; i++)
        sender.size[i] = splits_micro_batch(&p->axis[i]) ? layout->size[i] : 1;
    return sender;
}

PlanLayout first_sender(const Planner *p, const PlanLayout *layout)
{
    PlanLayout sender = sender_of(p, layout);
    sender.microbatch = MANY;
    return with_few_ranks(p, &sender, 1);
}

PlaceTime least_messages(Planner *p, const PlanLayout *layout)
{
    const PlanLayout sender = sender_of(p, layout);
    PlanLayout of = sender;
    of.attend = layout->attend == GATHER ? GATHER : RING; /* keys come by other means */
    bool sends = false, is_inside = false;
    uint64_t key = (uint64_t)of.microbatch * 8 + (uint64_t)of.attend * 2 + (uint64_t)of.zero;
    for (int i = 0; i < p->naxes; i++) {
        sends |= sender.size[i] > 1;
        is_inside |= sender.size[i] > 1; /* from here on, axes move its ranks apart */
        of.size[i] = is_inside ? layout->size[i] : 1;
        key = (key ^ (uint64_t)of.size[i]) * 0x9E3779B97F4A7C15u;
    }
    if (!sends)
        return (PlaceTime){ 0 };
    MessageTime **first = &p->blocks->messages[(key >> 40) % MESSAGE_LISTS];
    for (const MessageTime *known = *first; known; known = known->next)
        if (memcmp(known->of.size, of.size, sizeof of.size) == 0 && known->of.microbatch == of.microbatch &&
            known->of.attend == of.attend && known->of.zero == of.zero)
            return known->time;
    MessageTime *made = NEW(p->arena, MessageTime);
    *made = (MessageTime){ of, time_of_messages(p, layout, &sender, layout->attend == GATHER), *first };
    *first = made;
    return made->time;
}
