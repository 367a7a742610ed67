/* step_cost.c -- walks over the step of each kind of rank, and lists what its ops cost: see step_cost.h. */
#include "step_cost.h"

#include "flight.h"
#include "micro.h"
#include "split_loop.h"

typedef struct Twin {
    const Op *op;
    struct Twin *next;
} Twin;

typedef struct {
    StepCost *cost;
    Module *m;
    Arena *arena;
    const MicroParts *parts;
    int rank;        /* the kind of rank */
    bool in_actions; /* of a pipeline, whose schedule sends what goes from stage to stage */
    Map forward, backward;
    Map updates; /* that the step before has left */
    Map twins;   /* path -> ops of the forward pass, those in kernels too */
    Map ids;     /* the op that starts a message -> its number */
    Map known;   /* an op -> its items, where they are the same on all kinds of ranks */
} Walk;

/* --- Phases ---------------------------------------------------------------------------------------- */

static void note_twin(Walk *w, const Op *op)
{
    if (!op->path)
        return;
    Twin *twin = NEW(w->arena, Twin);
    *twin = (Twin){ op, map_get(&w->twins, op->path) };
    map_put(&w->twins, op->path, twin);
}

static void note_twins(Walk *w, const Op *op)
{
    const Func *kernel = op->attrs.callee ? find_func(w->m, op->attrs.callee) : NULL;
    if (!kernel)
        note_twin(w, op);
    for (const Op *inner = kernel && kernel->role == KERNEL ? kernel->first : NULL; inner; inner = inner->next)
        note_twin(w, inner);
}

static bool are_twins(const Op *a, const Op *b)
{
    if (a->kind != b->kind || a->where != b->where || !type_equal(&result(a)->type, &result(b)->type))
        return false;
    Attrs x = a->attrs, y = b->attrs;
    x.frame = y.frame = 0; /* where its scratch is */
    return attrs_equal(&x, &y);
}

static bool has_twin(const Walk *w, const Op *op)
{
    for (const Twin *twin = op && op->path ? map_get(&w->twins, op->path) : NULL; twin; twin = twin->next)
        if (are_twins(op, twin->op))
            return true;
    return false;
}

/* Does an op of the backward pass what one of the forward pass has done?  A kernel does, if all of its results are of
 * such ops. */
static bool is_recomputed(const Walk *w, const Op *op)
{
    const Func *kernel = op->attrs.callee ? find_func(w->m, op->attrs.callee) : NULL;
    if (!kernel)
        return has_twin(w, op);
    for (int i = 0; i < kernel->results.count; i++)
        if (!has_twin(w, kernel->results.at[i]->def))
            return false;
    return kernel->results.count > 0;
}

/* Does it bring what is stored elsewhere, by a message of zero or from another tier?  Both passes do, and neither
 * computes it. */
static bool brings_state(const Op *op)
{
    const Op *start = info(op)->traits & WAITS && arg(op, 0)->def ? arg(op, 0)->def : op;
    return start->attrs.purpose != ANY_PURPOSE || info(start)->traits & CARRIES;
}

static Phase phase_of(const Walk *w, const Op *op)
{
    if (map_get(&w->updates, op))
        return UPDATED;
    if (map_get(&w->forward, op))
        return FORWARD;
    if (!map_get(&w->backward, op))
        return UPDATED;
    return is_recomputed(w, op) && !brings_state(op) ? RECOMPUTED : BACKWARD;
}

/* The forward pass is all ops that the loss depends on, the backward pass all others that gradients depend on. */
static void find_phases(Walk *w, const Classes *classes, const Func *step)
{
    const StepState state = func_with_role(w->m, FINISH) ? state_of(step) : (StepState){ 0 };
    for (int i = 0; i < state.count; i++)
        if (state.before[i]->port.kind == PORT_PARAM || state.before[i]->port.kind == PORT_OPTIMIZER)
            mark_forward(w->m, &w->updates, state.after[i]);
    mark_forward(w->m, &w->forward, result_for(step, PORT_LOSS));
    for (const Op *op = step->first; op; op = op->next)
        for (int i = 0; i < op->args.count; i++)
            if (class_of(classes, arg(op, i)) == GRADIENTS)
                mark_forward(w->m, &w->backward, arg(op, i));
    for (const Func *f = w->m->funcs; f; f = f->next)
        for (const Op *op = f->role == KERNEL ? NULL : f->first; op; op = op->next)
            if (map_get(&w->forward, op))
                note_twins(w, op);
}

/* --- Messages -------------------------------------------------------------------------------------- */

/* The number of a started message: that of its first tensor; with what the next turn of a loop waits for, it is one. */
static int id_of(Walk *w, const Op *start)
{
    while (joins_message(start))
        start = start->prev;
    const Op *key = continued_by(w->m, start);
    if (!map_get(&w->ids, key))
        map_put(&w->ids, key, (void *)(intptr_t)++w->cost->messages);
    return (int)(intptr_t)map_get(&w->ids, key);
}

static void join_message(Walk *w, CostItem *message, const CostItem *item)
{
    SentTensor *sent = NEW(w->arena, SentTensor);
    *sent = *item->sent;
    sent->next = message->sent;
    message->sent = sent;
    message->volume += item->volume;
    message->bytes += item->bytes;
    message->tensors++;
}

static void add_message(Walk *w, const Func *f, const Op *op, CostList *list)
{
    CostItem item = message_item(w->m, w->arena, op, w->rank);
    CostItem *last = list->count ? &list->item[list->count - 1] : NULL;
    if (w->in_actions && is_send(op))
        list = &w->cost->handed_on[w->rank];
    else if (last && last->kind == ITEM_MESSAGE && joins_message(op) && is_one_message(last->op, op)) {
        join_message(w, last, &item);
        return;
    }
    item.phase = phase_of(w, op);
    item.id = op->attrs.started ? id_of(w, op) : 0;
    item.ahead = handed_on(f, op) >= 0;
    item.early = op->attrs.early ? chunk_among(w->parts, op) + 1 : 0;
    push_item(w->arena, list, item);
}

/* Once for all tensors of a message. */
static void add_wait(Walk *w, const Func *f, const Op *op, CostList *list)
{
    const int id = id_of(w, flight_start(f, arg(op, 0)));
    const CostItem *last = list->count ? &list->item[list->count - 1] : NULL;
    if (!last || last->kind != ITEM_WAIT || last->id != id)
        push_item(w->arena, list, (CostItem){ .kind = ITEM_WAIT, .op = op, .id = id });
}

/* --- The walk -------------------------------------------------------------------------------------- */

static void add_ops(Walk *w, const Func *f, uint64_t ranks, CostList *list);

static void add_call(Walk *w, const Op *op, const Func *callee, uint64_t ranks, CostList *list)
{
    const double turns = iterations_on(w->m, op, w->rank);
    if (!op->attrs.dims.count) {
        add_ops(w, callee, ranks, list);
    } else if (turns > 0) {
        CostList *body = NEW(w->arena, CostList);
        add_ops(w, callee, ranks, body);
        push_item(w->arena, list, (CostItem){ .kind = ITEM_REPEAT, .op = op, .turns = turns, .body = body });
    }
}

/* Has a stage a part of its own size of an operand or result? */
static bool differs_by_rank(const Module *m, const Op *op)
{
    for (int i = 0; m->kind_axis >= 0 && i < op->args.count + op->results.count; i++) {
        const Type *type = &arg_or_result(op, i)->type;
        for (int j = 0; j < type->rank; j++)
            for (int k = 0; k < type->dim[j].split.count; k++)
                if (type->dim[j].split.axis[k] == m->kind_axis)
                    return true;
    }
    return false;
}

static void add_work(Walk *w, const Op *op, CostList *list)
{
    CostList *items = map_get(&w->known, op);
    if (!items) {
        items = NEW(w->arena, CostList);
        push_cost(w->m, w->arena, items, op, w->rank, true);
        for (int i = 0; i < items->count; i++)
            items->item[i].phase = phase_of(w, op);
        if (!differs_by_rank(w->m, op))
            map_put(&w->known, op, items);
    }
    for (int i = 0; i < items->count; i++)
        push_item(w->arena, list, items->item[i]);
}

static void add_op(Walk *w, const Func *f, const Op *op, uint64_t ranks, CostList *list)
{
    const Func *callee = op->attrs.callee ? find_func(w->m, op->attrs.callee) : NULL;
    const uint64_t on = ranks_that_run(w->m, f, op, ranks);
    if (!(on >> w->rank & 1))
        return;
    if (callee && callee->role != KERNEL)
        add_call(w, op, callee, on, list);
    else if (info(op)->traits & (SENDS | CARRIES))
        add_message(w, f, op, list);
    else if (info(op)->traits & WAITS)
        add_wait(w, f, op, list);
    else
        add_work(w, op, list);
}

static void add_ops(Walk *w, const Func *f, uint64_t ranks, CostList *list)
{
    for (const Op *op = f->first; op; op = op->next)
        add_op(w, f, op, ranks, list);
}

/* --- Pipelines ------------------------------------------------------------------------------------- */

static void add_actions(Walk *w, const MicroParts *parts)
{
    const PipelineSchedule *schedule = w->cost->schedule;
    w->in_actions = true;
    for (const Op *op = parts->micro->first; op; op = op->next) {
        const StagePart *part = part_numbered(parts, part_of(parts, op));
        const int stage = stage_on_rank(schedule, w->rank, part->chunk);
        add_op(w, parts->micro, op, ALL_RANKS, &w->cost->action[part->kind][stage]);
    }
    w->in_actions = false;
}

double bytes_between_stages(const Module *m, const MicroParts *parts,
                            bool (*is_wanted)(const Module *m, const Op *loop, int carried))
{
    double most = 0;
    for (int i = 0; i < parts->count; i++)
        for (int k = 0; k < parts->part[i].nloops; k++) {
            const Op *loop = parts->part[i].loop[k];
            double bytes = 0;
            for (int j = 0; j < count_passed_on(loop); j++)
                if (!is_wanted || is_wanted(m, loop, j))
                    bytes += (double)local_bytes(m, &loop->results.at[j]->type);
            most = bytes > most ? bytes : most;
        }
    return most;
}

static void find_schedule(StepCost *cost, const Op **loop, MicroParts *parts)
{
    if (cost->m->kind_axis < 0)
        return;
    cost->schedule = schedule_of_step(cost->m, cost->arena, loop, parts, &cost->unscheduled);
    if (cost->schedule)
        assign_parts(parts);
    else
        cost->schedule = schedule_of_one(cost->m, cost->arena, parts);
    if (!cost->schedule)
        return;
    cost->unscheduled = NULL;
    cost->stage_message = bytes_between_stages(cost->m, parts, NULL);
    cost->actions = stage_count(cost->schedule);
    for (int kind = 0; kind < N_ACTION_KINDS; kind++)
        cost->action[kind] = NEW_ARRAY(cost->arena, CostList, cost->actions);
}

/* --- The step -------------------------------------------------------------------------------------- */

/* One micro-batch: ops between loops in stages belong to the next loop, and those after the last one to no stage. */
static void add_unrolled(Walk *w, const Func *step, const MicroParts *parts)
{
    CostList *list = &w->cost->before[w->rank];
    int part = 0, passed = 0;
    for (const Op *op = step->first; op; op = op->next) {
        const StagePart *p = part < parts->count ? &parts->part[part] : NULL;
        const bool is_loop = p && op == p->loop[passed];
        w->in_actions = p;
        if (is_loop || (p && part + passed > 0))
            list = &w->cost->action[p->kind][stage_on_rank(w->cost->schedule, w->rank, p->chunk)];
        add_op(w, step, op, ALL_RANKS, list);
        passed += is_loop;
        if (p && passed == p->nloops)
            part++, passed = 0;
        if (part == parts->count)
            list = &w->cost->after[w->rank];
    }
}

static void add_step(Walk *w, const Func *step, const Op *pipeline, const MicroParts *parts)
{
    CostList *list = &w->cost->before[w->rank];
    for (const Op *op = step->first; op; op = op->next) {
        if (op != pipeline) {
            add_op(w, step, op, ALL_RANKS, list);
            continue;
        }
        add_actions(w, parts);
        list = &w->cost->after[w->rank];
    }
}

StepCost step_cost(Module *m, const Classes *classes, Arena *arena)
{
    const Func *step = func_with_role(m, STEP);
    StepCost cost = { .m = m, .arena = arena, .kinds = count_kinds(m) };
    MicroParts parts = { 0 };
    const Op *loop = NULL;
    Walk w = { .cost = &cost,
               .m = m,
               .parts = &parts,
               .arena = arena,
               .forward.arena = arena,
               .backward.arena = arena,
               .updates.arena = arena,
               .twins.arena = arena,
               .ids.arena = arena,
               .known.arena = arena };
    cost.before = NEW_ARRAY(arena, CostList, cost.kinds);
    cost.after = NEW_ARRAY(arena, CostList, cost.kinds);
    cost.handed_on = NEW_ARRAY(arena, CostList, cost.kinds);
    find_phases(&w, classes, step);
    find_schedule(&cost, &loop, &parts);
    for (w.rank = 0; w.rank < cost.kinds; w.rank++)
        if (cost.schedule && !loop)
            add_unrolled(&w, step, &parts);
        else
            add_step(&w, step, cost.schedule ? loop : NULL, &parts);
    return cost;
}

/* --- Its items ------------------------------------------------------------------------------------- */

/* The last turn of a loop starts nothing for the next one. */
static void visit_list(const CostList *list, double times, double last, ItemVisit visit, void *context)
{
    for (int i = 0; i < list->count; i++) {
        const CostItem *item = &list->item[i];
        if (item->kind == ITEM_REPEAT)
            visit_list(item->body, times * item->turns, times, visit, context);
        else
            visit(context, item, item->ahead ? times - last : times);
    }
}

void visit_items(const StepCost *cost, int kind, ItemVisit visit, void *context)
{
    const PipelineSchedule *s = cost->schedule;
    visit_list(&cost->before[kind], 1, 0, visit, context);
    for (int action = 0; s && action < N_ACTION_KINDS; action++)
        for (int chunk = 0; chunk < s->chunks; chunk++)
            visit_list(&cost->action[action][stage_on_rank(s, kind, chunk)], s->micros, 0, visit, context);
    visit_list(&cost->handed_on[kind], s ? s->micros : 1, 0, visit, context);
    visit_list(&cost->after[kind], 1, 0, visit, context);
}
