/* message_bound.c -- what ranks wait for messages of a micro-batch, by arithmetic.
 *
 * The messages of a program are read once for all layouts that differ in sizes alone (structure.h).  A message has the
 * bytes of one tensor: as many times as large as the micro-batch is, and divided by the axes that split the tensor.
 * Those that are not started ahead are waited for.  With least_micro() this bounds a layout without looking at its
 * program. */
#include "block.h"
#include "structure.h"

#include <string.h>

/* One message, or several alike. */
typedef struct {
    int kind;         /* of op */
    double volume;    /* of a micro-batch of one sequence on one rank of all axes that split the tensor: see Traffic */
    bool grows;       /* with the micro-batch */
    Axes split, axes; /* of the program */
    double times;     /* in a micro-batch */
    int loop;         /* see shared_loop() */
} LayoutMessage;

typedef struct LayoutMessages {
    PlanProgram key;
    bool refused;
    int naxes;
    const char *axis[MAX_AXES]; /* of the program */
    int count, room;
    LayoutMessage *at;
    struct LayoutMessages *next;
} LayoutMessages;

static double ranks_of_axes(const RankMesh *mesh, const LayoutMessages *messages, Axes axes)
{
    double ranks = 1;
    for (int i = 0; i < messages->naxes; i++)
        ranks *= axes >> i & 1 ? (double)mesh->size[mesh->of[i]] : 1;
    return ranks;
}

/* --- Reading --------------------------------------------------------------------------------------------------- */

static Axes split_of_tensor(const Module *m, const Type *type)
{
    Axes axes = 0;
    for (int i = 0; i < type->rank; i++)
        for (int k = 0; k < type->dim[i].split.count; k++)
            axes |= type->dim[i].name == m->batch ? 0 : 1u << type->dim[i].split.axis[k];
    return axes;
}

static void add_message(const Planner *p, LayoutMessages *messages, LayoutMessage message)
{
    for (int i = 0; i < messages->count; i++) {
        LayoutMessage *like = &messages->at[i];
        if (like->kind == message.kind && like->volume == message.volume && like->split == message.split &&
            like->axes == message.axes && like->grows == message.grows && like->loop == message.loop) {
            like->times += message.times;
            return;
        }
    }
    if (messages->count == messages->room) {
        LayoutMessage *grown = NEW_ARRAY(p->arena, LayoutMessage, messages->room = messages->room * 2 + 16);
        for (int i = 0; i < messages->count; i++)
            grown[i] = messages->at[i];
        messages->at = grown;
    }
    messages->at[messages->count++] = message;
}

typedef struct {
    const Planner *p;
    const PlanLayout *layout;
    LayoutMessages *messages;
} Reading;

static void add_item(const Reading *r, const Module *m, const CostItem *item, double times, int loop)
{
    const Op *op = item->op;
    const Type *from = &arg(op, 0)->type, *to = &result(op)->type;
    const Type *larger = local_bytes(m, from) > local_bytes(m, to) ? from : to;
    const RankMesh mesh = mesh_around(r->p, r->layout, r->messages->naxes, r->messages->axis);
    LayoutMessage message = { .kind = (int)op->kind,
                              .grows = find_dim(larger, m->batch) >= 0,
                              .split = split_of_tensor(m, larger),
                              .axes = item->axes,
                              .times = times,
                              .loop = loop };
    message.volume = item->volume * ranks_of_axes(&mesh, r->messages, message.split) /
                     (message.grows ? (double)r->layout->microbatch : 1);
    add_message(r->p, r->messages, message);
}

/* Nothing runs between its start and its wait. */
static bool waits_at_once(const CostList *list, int i)
{
    const CostItem *item = &list->item[i], *next = i + 1 < list->count ? item + 1 : NULL;
    return !item->id || (!item->ahead && next && next->kind == ITEM_WAIT && next->id == item->id);
}

/* Of a micro-batch: what waits at once, and is not of zero. */
static void add_list(const Reading *r, const Module *m, const CostList *list, double times, int loop)
{
    for (int i = 0; i < list->count; i++) {
        const CostItem *item = &list->item[i];
        const bool waits =
            item->kind == ITEM_MESSAGE && item->op->attrs.purpose == ANY_PURPOSE && waits_at_once(list, i);
        if (item->kind == ITEM_REPEAT)
            add_list(r, m, item->body, times * item->turns, loop ? loop : shared_loop(r->p, item->op));
        else if (waits && item->phase != UPDATED)
            add_item(r, m, item, times, loop);
    }
}

static void read_messages(void *context, Module *m, const Classes *classes, const char *why)
{
    const Reading *r = context;
    Arena arena = { 0 };
    (void)why;
    r->messages->refused = !m;
    if (!m)
        return;
    r->messages->naxes = m->naxes;
    for (int i = 0; i < m->naxes; i++)
        r->messages->axis[i] = arena_text(r->p->arena, "%s", m->axis[i]);
    const StepCost cost = step_cost(m, classes, &arena);
    add_list(r, m, &cost.before[0], 0.5, 0); /* of two micro-batches */
    arena_free(&arena);
}

/* --- The bound ---------------------------------------------------------------------------------------------------- */

static PlanLayout alone(const Planner *p, const PlanLayout *layout)
{
    PlanLayout one = *layout;
    one.overlaps = false, one.schedule = ONE_F_ONE_B, one.chunks = 1;
    for (int i = 0; i < p->naxes; i++)
        one.size[i] = p->axis[i].is_pipeline ? 1 : p->axis[i].is_batch && one.size[i] > 1 ? 2 : one.size[i];
    return one;
}

static const LayoutMessages *messages_of(Planner *p, const PlanLayout *layout)
{
    const PlanLayout one = alone(p, layout);
    const PlanProgram key = structure_key(p, &one, 2);
    for (const LayoutMessages *known = p->blocks->messages; known; known = known->next)
        if (memcmp(&known->key, &key, sizeof key) == 0)
            return known;
    LayoutMessages *messages = NEW(p->arena, LayoutMessages);
    *messages = (LayoutMessages){ .key = key, .next = p->blocks->messages };
    p->blocks->messages = messages;
    with_structure(p, &one, 2, read_messages, &(Reading){ p, &one, messages });
    return messages;
}

static MicroTime with_messages(Planner *p, const PlanLayout *layout, MicroTime time)
{
    const LayoutMessages *messages = layout->attend == RING ? NULL : messages_of(p, layout);
    if (!messages || messages->refused)
        return time;
    const RankMesh mesh = mesh_around(p, layout, messages->naxes, messages->axis);
    for (int i = 0; i < messages->count; i++) {
        const LayoutMessage *message = &messages->at[i];
        const double volume = message->volume * (message->grows ? (double)layout->microbatch : 1) /
                              ranks_of_axes(&mesh, messages, message->split);
        const Group group = group_in_mesh(p->machine, &mesh, message->axes);
        const double seconds = message->times * message_seconds(p->machine, message->kind, volume, group);
        time.whole += seconds;
        add_shared(p, &time, message->loop, seconds);
    }
    return time;
}

/* Without zero, where zero may make a difference, what a micro-batch waits for may be less: see block.c. */
MicroTime least_with_messages(Planner *p, const PlanLayout *layout)
{
    PlanLayout without = *layout, with = *layout;
    without.zero = 0, with.zero = 1;
    const MicroTime least = least_micro(p, layout), time = with_messages(p, &with, least);
    if (!p->has_experts)
        return time;
    const MicroTime other = with_messages(p, &without, least);
    return time.whole < other.whole ? time : other;
}
