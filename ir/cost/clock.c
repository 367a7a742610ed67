/* clock.c -- runs items on a machine: see clock.h. */
#include "clock.h"

#include "tier.h"

#include <math.h>

/* --- What time goes to ------------------------------------------------------------------------------- */

AxesTime *axes_time(StepTime *t, Axes axes)
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
    intptr_t known = (intptr_t)map_get(&c->lines, op);
    LineTime *line = known ? &c->time->line[known - 1] : new_line(c, op);
    if (!known)
        map_put(&c->lines, op, (void *)(line - c->time->line + 1));
    return line;
}

static void record(Clock *c, BarKind kind, const CostItem *item, double start, double end)
{
    if (c->bars)
        add_bar(c->bars, kind, item, start, end);
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
 * Ranks of axes from which a stride of `below` is reached are not; and where the next stride divides `below`, as many
 * follow on each rank of the axis. */
static int64_t ranks_below(const int64_t *size, Axes axes, int axis, int64_t stride, int64_t below)
{
    int64_t count = 0;
    if (axis < 0 || stride >= below)
        return 1;
    const int64_t most = axes >> axis & 1 ? size[axis] : 1;
    if (below % (stride * size[axis]) == 0)
        return most * ranks_below(size, axes, axis - 1, stride * size[axis], below);
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

Group message_group(const Clock *c, Axes axes, int64_t ranks)
{
    const Module *m = c->cost->m;
    const Group all = c->cost->mesh ? group_in_mesh(c->machine, c->cost->mesh, axes)
                                    : group_along(c->machine, m->axis_size, m->naxes, axes);
    const int64_t together = all.on_one_machine;
    return (Group){ ranks, together < ranks ? together : ranks };
}

double sent_seconds(const Machine *machine, const CostItem *item, Group group)
{
    return message_seconds(machine, (int)item->collective, item->volume, group) +
           (item->bytes > 0 ? kernel_seconds(machine, item->bytes, 1) : 0);
}

static void time_message(const Clock *c, CostItem *item)
{
    if (op_table[item->collective].traits & CARRIES) {
        item->link = TO_TIERS;
        item->seconds = item->volume / machine_tier(c->machine, far_tier(c->cost->m));
        return;
    }
    const Group group = message_group(c, item->axes, item->ranks);
    item->link = group.on_one_machine < group.ranks ? BETWEEN : WITHIN;
    item->seconds = sent_seconds(c->machine, item, group);
}

static void wait_for(Clock *c, const CostItem *item, double done)
{
    const double seconds = done > c->now ? done - c->now : 0;
    record(c, BAR_WAITS, item, c->now, c->now + seconds);
    spend(c, ITEM_MESSAGE, item->phase, item->op, seconds);
    c->waited += seconds;
    if (c->time)
        axes_time(c->time, item->axes)->exposed += seconds * c->scale;
}

/* Computation beside a message loses what it takes of the GPU. */
static void send(Clock *c, const CostItem *item)
{
    const int link = item->link;
    const double seconds = item->seconds, ready = item->early ? c->chunk_end[item->early - 1] : c->now;
    const double done = c->link[link] = fmax(ready, c->link[link]) + seconds;
    record(c, BAR_UNDER_WAY, item, done - seconds, done);
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

/* Loops run it several times: its time is found once. */
static void time_item(const Clock *c, CostItem *item)
{
    if (item->kind == ITEM_MESSAGE)
        time_message(c, item);
    else if (item->kind < ITEM_MESSAGE)
        item->seconds = seconds_of(c->machine, item);
    item->is_timed = true;
}

static void compute(Clock *c, const CostItem *item)
{
    record(c, BAR_COMPUTES, item, c->now, c->now + item->seconds);
    spend(c, item->kind, item->phase, item->op, item->seconds);
}

static void run_list(Clock *c, const CostList *list, bool last);

/* Moves the clock, and all that is under way, ahead. */
static void go_ahead(Clock *c, double seconds, double waited)
{
    c->now += seconds;
    c->waited += waited;
    for (int i = 0; i < N_LINKS; i++)
        c->link[i] += seconds;
    for (int i = 1; i <= c->cost->messages; i++)
        c->done[i] += seconds;
}

/* Runs the first and the last iteration, and two in between; the second of these counts for all others. */
static void run_turns(Clock *c, const CostItem *item)
{
    enum { RUN = 4 };
    const double turns = item->turns, scale = c->scale, left = turns > RUN ? turns - RUN : 0;
    for (int turn = 0; turn < RUN && turn < turns; turn++) {
        const double before = c->now, waited = c->waited;
        const bool counts = turn == 2 && left > 0;
        const int bars = c->bars ? begin_turn(c->bars) : 0;
        c->scale = counts ? scale * (left + 1) : scale;
        run_list(c, item->body, turn + 1 == (turns < RUN ? turns : RUN));
        if (counts && c->bars)
            repeat_turn(c->bars, bars, (int64_t)left, c->now - before);
        if (counts)
            go_ahead(c, left * (c->now - before), left * (c->waited - waited));
    }
    c->scale = scale;
}

static void run_item(Clock *c, CostItem *item, bool last)
{
    if (!item->is_timed)
        time_item(c, item);
    if (item->kind == ITEM_REPEAT)
        run_turns(c, item);
    else if (item->kind == ITEM_WAIT && c->sent[item->id])
        wait_for(c, c->sent[item->id], c->done[item->id]);
    else if (item->kind == ITEM_MESSAGE && !(last && item->ahead))
        send(c, item);
    else if (item->kind < ITEM_MESSAGE)
        compute(c, item);
}

/* `last`: it is the last turn of a loop, which starts nothing for the next one. */
static void run_list(Clock *c, const CostList *list, bool last)
{
    for (int i = 0; i < list->count; i++)
        run_item(c, &list->item[i], last);
}

/* --- A list ------------------------------------------------------------------------------------------ */

Clock new_clock(const StepCost *cost, const Machine *machine, Arena *arena)
{
    return (Clock){ .cost = cost,
                    .machine = machine,
                    .done = NEW_ARRAY(arena, double, cost->messages + 1),
                    .sent = NEW_ARRAY(arena, const CostItem *, cost->messages + 1),
                    .lines.arena = arena,
                    .arena = arena };
}

void run_from(Clock *c, double now, const CostList *list, double times)
{
    c->scale = times;
    c->now = now;
    c->waited = 0;
    for (int i = 0; i < N_LINKS; i++)
        c->link[i] = 0;
    for (int i = 0; i <= c->cost->messages; i++)
        c->sent[i] = NULL;
    run_list(c, list, false);
}
