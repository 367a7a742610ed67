/* message_bound.c -- the least time that the messages of a micro-batch take, by arithmetic.
 *
 * A program in which a single axis has several ranks sends along it what any other program does, too, that splits the
 * same dims along it.  So one program for each axis serves all meshes.  Other axes may split its messages further: of
 * each, the bytes count divided by the ranks of all of them.  What grows with the batch counts alone, since gradients
 * of weights may be sent once a step.  Messages may hide behind computation. */
#include "sized.h"

typedef struct AxisMessages {
    int axis;
    int64_t size, inner, others, microbatch;
    bool gathers;
    double seconds;
    struct AxisMessages *next;
} AxisMessages;

typedef struct {
    const Planner *p;
    const PlanLayout *layout;
    const Sized *s;
    Sizing sizing; /* of the axis alone */
    RankMesh mesh; /* of the layout */
    double others;
} Walk;

static double volume_of(const Walk *w, Range terms)
{
    double sum = 0;
    for (int i = 0; i < terms.count; i++)
        if (w->s->term[terms.first + i].scale.grows)
            sum += sum_of(&w->sizing, (Range){ terms.first + i, 1 });
    return sum;
}

static double seconds_of_list(const Walk *w, Range items)
{
    double seconds = 0;
    for (int i = 0; i < items.count; i++) {
        const SizedItem *item = &w->s->item[items.first + i];
        const bool counts =
            item->item.kind == ITEM_MESSAGE && !item->is_zero && (!item->is_of_keys || w->layout->attend == GATHER);
        if (item->item.kind == ITEM_REPEAT)
            seconds += item->item.turns * seconds_of_list(w, item->body);
        if (counts)
            seconds += message_seconds(w->p->machine, (int)item->item.collective,
                                       volume_of(w, item->sum[SUM_VOLUME]) / w->others,
                                       group_in_mesh(w->p->machine, &w->mesh, item->item.axes));
    }
    return seconds;
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

static bool is_other(const Planner *p, int axis, int i)
{
    return i != axis && !p->axis[i].is_data && !p->axis[i].is_pipeline;
}

static double seconds_along(Planner *p, const PlanLayout *layout, int axis, const AxisMessages *of)
{
    const BlockOf summed = { .is_summed = true };
    PlanLayout alone = *layout;
    alone.attend = GATHER, alone.recompute = RECOMPUTE_NONE, alone.zero = 1, alone.overlaps = false;
    alone.schedule = ONE_F_ONE_B, alone.chunks = 1;
    for (int i = 0; i < p->naxes; i++)
        alone.size[i] = i == axis ? layout->size[i] : 1;
    PlanLayout program = alone;
    program.microbatch = 2; /* of one sequence alone, dims are moved for nothing */
    const Sized *s = find_sized(p, &program, summed);
    if (s->refused || s->is_irregular)
        return 0;
    Arena arena = { 0 };
    Walk w = { .p = p,
               .layout = layout,
               .s = s,
               .mesh = mesh_around(p, layout, s->naxes, s->axis),
               .others = (double)of->others };
    start_sizing(&w.sizing, p, s, &alone, &arena);
    const double seconds = seconds_of_list(&w, micro_body(s));
    arena_free(&arena);
    return seconds;
}

static double messages_along(Planner *p, const PlanLayout *layout, int axis)
{
    AxisMessages like = { .axis = axis,
                          .size = layout->size[axis],
                          .inner = 1,
                          .others = 1,
                          .microbatch = layout->microbatch,
                          .gathers = layout->attend == GATHER };
    for (int i = 0; i < p->naxes; i++) {
        like.inner *= i > axis ? layout->size[i] : 1;
        like.others *= is_other(p, axis, i) ? layout->size[i] : 1;
    }
    const uint64_t key = (((uint64_t)like.size * 131 + (uint64_t)like.inner) * 131 + (uint64_t)like.others) * 131 +
                         (uint64_t)like.microbatch * 31 + (uint64_t)axis * 2 + like.gathers;
    AxisMessages **first = &p->blocks->messages[(key * 0x9E3779B97F4A7C15u >> 40) % MESSAGE_LISTS];
    for (const AxisMessages *known = *first; known; known = known->next)
        if (known->axis == axis && known->size == like.size && known->inner == like.inner &&
            known->others == like.others && known->microbatch == like.microbatch && known->gathers == like.gathers)
            return known->seconds;
    AxisMessages *made = NEW(p->arena, AxisMessages);
    like.seconds = seconds_along(p, layout, axis, &like);
    like.next = *first;
    *made = like, *first = made;
    return made->seconds;
}

/* Along the axis that takes longest.  Of experts, ranks that share sequences send what depends on zero. */
double least_messages(Planner *p, const PlanLayout *layout)
{
    double most = 0;
    for (int i = 0; i < p->naxes; i++)
        if (layout->size[i] > 1 && !p->axis[i].is_batch && !p->axis[i].is_pipeline &&
            !(p->has_experts && p->axis[i].attends)) {
            const double seconds = messages_along(p, layout, i);
            most = seconds > most ? seconds : most;
        }
    return most * JOINED_SHARE;
}
