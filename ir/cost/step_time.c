/* step_time.c -- evaluates the items of a step on a machine: see step_time.h. */
#include "step_time.h"

#include <math.h>
#include <stdlib.h>

enum { WITHIN, BETWEEN, N_LINKS }; /* machines */

/* A rank while it runs: its compute stream, and the messages of each class of links. */
typedef struct {
    const StepCost *cost;
    const Machine *machine;
    double now, link[N_LINKS];
    double waited;           /* of `now`, for messages */
    double *done;            /* by number of message: when it has arrived */
    const CostItem **sent;   /* likewise */
    const double *chunk_end; /* when the rank ends each chunk; NULL: there are none */
    double scale;            /* how often what runs now runs in the step */
    StepTime *time;          /* what the rank's time goes to; NULL: not wanted */
    Map *lines;              /* Op -> the index of its line + 1 */
    Arena *arena;
} Clock;

/* --- What time goes to ------------------------------------------------------------------------------- */

static AxesTime *axes_time(StepTime *t, Axes axes)
{
    int i = 0;
    while (i < t->naxes && t->axes[i].axes != axes)
        i++;
    if (i == t->naxes)
        t->axes[t->naxes++] = (AxesTime){ .axes = axes };
    return &t->axes[i];
}

static LineTime *new_line(Clock *c, const Op *op)
{
    StepTime *t = c->time;
    for (int i = 0; i < t->nlines; i++)
        if (t->line[i].op->path == op->path && t->line[i].op->where == op->where)
            return &t->line[i];
    if (t->nlines == t->line_room) {
        LineTime *grown = NEW_ARRAY(c->arena, LineTime, t->line_room = t->line_room ? 2 * t->line_room : 64);
        for (int i = 0; i < t->nlines; i++)
            grown[i] = t->line[i];
        t->line = grown;
    }
    t->line[t->nlines] = (LineTime){ .op = op };
    return &t->line[t->nlines++];
}

static LineTime *line_time(Clock *c, const Op *op)
{
    intptr_t known = (intptr_t)map_get(c->lines, op);
    LineTime *line = known ? &c->time->line[known - 1] : new_line(c, op);
    if (!known)
        map_put(c->lines, op, (void *)(line - c->time->line + 1));
    return line;
}

/* The rank is busy with it, or waits for a message, for so long. */
static void spend(Clock *c, ItemKind kind, Phase phase, const Op *op, double seconds)
{
    c->now += seconds;
    if (!c->time || seconds <= 0)
        return;
    LineTime *line = line_time(c, op);
    c->time->item[kind] += seconds * c->scale;
    c->time->phase[phase] += seconds * c->scale;
    line->seconds[kind] += seconds * c->scale;
    line->all += seconds * c->scale;
}

/* --- Messages ---------------------------------------------------------------------------------------- */

/* Of the ranks that differ from the first along some axes: how many are below `below`.  The last axis counts fastest.
 */
static int64_t ranks_below(const int64_t *size, Axes axes, int axis, int64_t stride, int64_t below)
{
    int64_t count = 0;
    if (axis < 0)
        return 1;
    const int64_t most = axes >> axis & 1 ? size[axis] : 1;
    for (int64_t i = 0; i < most && i * stride < below; i++)
        count += ranks_below(size, axes, axis - 1, stride * size[axis], below - i * stride);
    return count;
}

Group group_along(const Machine *machine, const int64_t *size, int naxes, Axes axes)
{
    Group group = { .ranks = 1, .on_one_machine = ranks_below(size, axes, naxes - 1, 1, ranks_of_machine(machine)) };
    for (int i = 0; i < naxes; i++)
        group.ranks *= axes >> i & 1 ? size[i] : 1;
    return group;
}

Group group_in_mesh(const Machine *machine, const RankMesh *mesh, Axes axes)
{
    Axes all = 0;
    for (int i = 0; i < MAX_AXES; i++)
        all |= axes >> i & 1 ? 1u << mesh->of[i] : 0;
    return group_along(machine, mesh->size, mesh->count, all);
}

static Group group_of(const Clock *c, Axes axes, int64_t ranks)
{
    const Module *m = c->cost->m;
    const Group all = c->cost->mesh ? group_in_mesh(c->machine, c->cost->mesh, axes)
                                    : group_along(c->machine, m->axis_size, m->naxes, axes);
    const int64_t together = all.on_one_machine;
    return (Group){ ranks, together < ranks ? together : ranks };
}

static double message_time(const Clock *c, const CostItem *item, int *link)
{
    const Group group = group_of(c, item->axes, item->ranks);
    *link = group.on_one_machine < group.ranks ? BETWEEN : WITHIN;
    return message_seconds(c->machine, (int)item->collective, item->volume, group);
}

static void wait_for(Clock *c, const CostItem *item, double done)
{
    const double seconds = done > c->now ? done - c->now : 0;
    spend(c, ITEM_MESSAGE, item->phase, item->op, seconds);
    c->waited += seconds;
    if (c->time)
        axes_time(c->time, item->axes)->exposed += seconds * c->scale;
}

/* Computation beside a message loses what it takes of the GPU. */
static void send(Clock *c, const CostItem *item)
{
    int link;
    const double seconds = message_time(c, item, &link);
    const double ready = item->early ? c->chunk_end[item->early - 1] : c->now;
    const double done = c->link[link] = fmax(ready, c->link[link]) + seconds;
    if (c->time) {
        axes_time(c->time, item->axes)->sent += seconds * c->scale;
        axes_time(c->time, item->axes)->messages += c->scale;
    }
    if (!item->id) {
        wait_for(c, item, done);
        return;
    }
    c->done[item->id] = done, c->sent[item->id] = item;
    wait_for(c, item, c->now + (1 - machine_overlap(c->machine)) * seconds);
}

/* --- Items ------------------------------------------------------------------------------------------- */

static double seconds_of(const Machine *machine, const CostItem *item)
{
    const double moving = kernel_seconds(machine, item->bytes, 1);
    if (item->kind == ITEM_PRODUCT)
        return fmax(moving, product_seconds(machine, item->precision, item->m, item->n, item->k, item->count));
    if (item->kind == ITEM_ATTENTION)
        return fmax(moving, attention_seconds(machine, item->precision, item->flops, item->queries, item->keys,
                                              item->features, item->backward));
    return fused_seconds(machine, item->bytes, item->flops, 1);
}

static void run_list(Clock *c, const CostList *list, bool last);

/* As if all so far had been so much later. */
static void go_ahead(Clock *c, double seconds, double waited)
{
    c->now += seconds;
    c->waited += waited;
    for (int i = 0; i < N_LINKS; i++)
        c->link[i] += seconds;
    for (int i = 1; i <= c->cost->messages; i++)
        c->done[i] += seconds;
}

/* The first turn and the last one are run, and two in between, of which the second counts for all that are left. */
static void run_turns(Clock *c, const CostItem *item)
{
    enum { RUN = 4 };
    const double turns = item->turns, scale = c->scale, left = turns > RUN ? turns - RUN : 0;
    for (int turn = 0; turn < RUN && turn < turns; turn++) {
        const double before = c->now, waited = c->waited;
        const bool counts = turn == 2 && left > 0;
        c->scale = counts ? scale * (left + 1) : scale;
        run_list(c, item->body, turn + 1 == (turns < RUN ? turns : RUN));
        if (counts)
            go_ahead(c, left * (c->now - before), left * (c->waited - waited));
    }
    c->scale = scale;
}

static void run_item(Clock *c, const CostItem *item, bool last)
{
    if (item->kind == ITEM_REPEAT)
        run_turns(c, item);
    else if (item->kind == ITEM_WAIT && c->sent[item->id])
        wait_for(c, c->sent[item->id], c->done[item->id]);
    else if (item->kind == ITEM_MESSAGE && !(last && item->ahead))
        send(c, item);
    else if (item->kind < ITEM_MESSAGE)
        spend(c, item->kind, item->phase, item->op, seconds_of(c->machine, item));
}

/* `last`: it is the last turn of a loop, which starts nothing for the next one. */
static void run_list(Clock *c, const CostList *list, bool last)
{
    for (int i = 0; i < list->count; i++)
        run_item(c, &list->item[i], last);
}

/* --- One kind of rank -------------------------------------------------------------------------------- */

static void start_clock(Clock *c, double now)
{
    c->now = now;
    c->waited = 0;
    for (int i = 0; i < N_LINKS; i++)
        c->link[i] = 0;
    for (int i = 0; i <= c->cost->messages; i++)
        c->sent[i] = NULL;
}

static double time_of(Clock *c, const CostList *list, double times)
{
    c->scale = times;
    start_clock(c, 0);
    run_list(c, list, false);
    return c->now;
}

/* When a rank ends a chunk. */
static double chunk_end_of(const PipelineSchedule *s, const Timeline *t, int rank, int chunk)
{
    double end = 0;
    for (int i = 0; i < s->nactions[rank]; i++)
        if (s->action[rank][i].stage == stage_on_rank(s, rank, chunk))
            end = t->end[rank][i];
    return end;
}

/* The end of the step of a rank: after its last action, of which those of each chunk let messages start. */
static double end_of(Clock *c, const StepTime *t, int rank)
{
    const StepCost *cost = c->cost;
    double chunk_end[MAX_CHUNKS] = { 0 }, end = 0;
    for (int chunk = 0; cost->schedule && chunk < cost->schedule->chunks; chunk++) {
        chunk_end[chunk] = chunk_end_of(cost->schedule, &t->timeline, rank, chunk);
        end = fmax(end, chunk_end[chunk]);
    }
    c->chunk_end = chunk_end;
    c->scale = 1;
    start_clock(c, end);
    run_list(c, &cost->after[rank], false);
    return c->now;
}

/* --- Pipelines --------------------------------------------------------------------------------------- */

/* Of the slowest one. */
static double stage_message_time(const Clock *c)
{
    const Module *m = c->cost->m;
    const int64_t stages = m->axis_size[m->stage_axis];
    const bool meet = group_of(c, 1u << m->stage_axis, stages).on_one_machine == stages;
    const Group group = { 2, meet ? 2 : 1 };
    return message_seconds(c->machine, OP_send, c->cost->stage_message, group);
}

static void run_pipeline(Clock *c, StepTime *t)
{
    const PipelineSchedule *s = c->cost->schedule;
    const double **cost[] = { &t->costs.forward, &t->costs.backward, &t->costs.weight };
    for (int kind = 0; kind < N_ACTION_KINDS; kind++) {
        double *seconds = NEW_ARRAY(c->arena, double, stage_count(s));
        t->waits[kind] = NEW_ARRAY(c->arena, double, stage_count(s));
        for (int stage = 0; stage < stage_count(s); stage++) {
            seconds[stage] = time_of(c, &c->cost->action[kind][stage], 1);
            t->waits[kind][stage] = c->waited;
        }
        *cost[kind] = seconds;
    }
    t->costs.message = stage_message_time(c);
    simulate_schedule(c->arena, s, &t->costs, &t->timeline);
}

/* What stages send each other is waited for while a rank idles. */
static void attribute_actions(Clock *c, int rank)
{
    const PipelineSchedule *s = c->cost->schedule;
    for (int kind = 0; kind < N_ACTION_KINDS; kind++)
        for (int chunk = 0; chunk < s->chunks; chunk++)
            time_of(c, &c->cost->action[kind][stage_on_rank(s, rank, chunk)], s->micros);
    for (int i = 0; i < s->nevents[rank]; i++)
        if (s->event[rank][i].is_message && s->event[rank][i].sends) {
            AxesTime *axes = axes_time(c->time, 1u << c->cost->m->stage_axis);
            axes->sent += c->time->costs.message;
            axes->messages++;
        }
}

/* --- The step ---------------------------------------------------------------------------------------- */

static int longer_line_first(const void *a, const void *b)
{
    const LineTime *x = a, *y = b;
    return (x->all < y->all) - (x->all > y->all);
}

static int more_exposed_first(const void *a, const void *b)
{
    const AxesTime *x = a, *y = b;
    return (x->exposed < y->exposed) - (x->exposed > y->exposed);
}

/* What the time of the rank that ends last goes to; the rest of it, it waits for other stages. */
static void attribute(Clock *c, StepTime *t)
{
    c->time = t;
    time_of(c, &c->cost->before[t->kind], 1);
    if (c->cost->schedule)
        attribute_actions(c, t->kind);
    end_of(c, t, t->kind);
    t->idle = t->seconds;
    for (int i = 0; i < N_ITEM_KINDS; i++)
        t->idle -= t->item[i];
    qsort(t->line, (size_t)t->nlines, sizeof *t->line, longer_line_first);
    qsort(t->axes, (size_t)t->naxes, sizeof *t->axes, more_exposed_first);
}

double list_seconds(const StepCost *cost, const CostList *list, const Machine *machine, Arena *arena)
{
    Clock c = { .cost = cost,
                .machine = machine,
                .done = NEW_ARRAY(arena, double, cost->messages + 1),
                .sent = NEW_ARRAY(arena, const CostItem *, cost->messages + 1),
                .arena = arena };
    return time_of(&c, list, 1);
}

StepTime step_time(const StepCost *cost, const Machine *machine, Arena *arena)
{
    StepTime t = { 0 };
    Map lines = { .arena = arena };
    Clock c = { .cost = cost,
                .machine = machine,
                .done = NEW_ARRAY(arena, double, cost->messages + 1),
                .sent = NEW_ARRAY(arena, const CostItem *, cost->messages + 1),
                .lines = &lines,
                .arena = arena };
    double before = 0;
    if (cost->schedule)
        run_pipeline(&c, &t);
    for (int kind = 0; kind < cost->kinds; kind++)
        before = fmax(before, time_of(&c, &cost->before[kind], 1));
    for (int kind = 0; kind < cost->kinds; kind++) {
        const double end = before + end_of(&c, &t, kind);
        t.kind = end > t.seconds ? kind : t.kind;
        t.seconds = fmax(t.seconds, end);
    }
    t.bubble = cost->schedule ? t.timeline.bubble : 0;
    attribute(&c, &t);
    return t;
}
