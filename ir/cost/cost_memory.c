/* cost_memory.c -- the contents of the arena while a step runs, and its peak.
 *
 * While an op runs, memory is held by the values that have been made and will be read again, in its function and in its
 * callers.  Values that share storage are counted once.  The size of the arena exceeds the peak by the bytes that are
 * idle at that time.
 */
#include "cost.h"

#include "micro.h"
#include "needed.h"
#include "schedule/slots.h"

#include <stdlib.h>

/* A value of a function, from its op to its last reader. */
typedef struct {
    const Value *value;
    const Op *op; /* NULL: a parameter, which the step before has left */
    int first, last;
    Stretch planned; /* in its function's frame; empty: it is in no frame, but in slots, or where a pointer says */
    uint64_t on;     /* the kinds of rank that have memory for it */
} Life;

/* An op of a function. */
typedef struct {
    const Func *callee; /* with a frame of its own; NULL: none */
    uint64_t on;        /* the kinds that run it */
    int64_t beside;     /* bytes beside its results: scratch of its kernel, or buffers and slots of a loop */
} Moment;

/* What all kinds of rank have in common. */
typedef struct {
    Life *life;
    Moment *moment;
    int lives, moments;
} FuncLives;

typedef struct {
    Classes *classes;
    Module *m;
    Kinds *kinds;
    int kind;                /* of rank */
    const MicroSlots *slots; /* NULL: no schedule */
    int64_t base;            /* the frames begin here in the plan, after the values that outlive a step */
} PeakSearch;

typedef struct {
    int count, room;
    Stretch *at;
} UseList;

static void append_held(PeakSearch *plan, UseList *list, Stretch held)
{
    if (list->count == list->room) {
        Stretch *grown = NEW_ARRAY(&plan->m->arena, Stretch, list->room = list->room ? 2 * list->room : 64);
        for (int i = 0; i < list->count; i++)
            grown[i] = list->at[i];
        list->at = grown;
    }
    list->at[list->count++] = held;
}

/* A range of the plan of a function's frame, which begins at address `frame`: without what ranks of this kind leave
 * out. */
static Stretch placed(PeakSearch *plan, const Func *f, int64_t frame, Stretch planned)
{
    const KindFrame *own = kind_frame(plan->kinds, f);
    Stretch held = planned;
    held.begin = frame + place_on(own, plan->kind, planned.begin);
    held.end = frame + place_on(own, plan->kind, planned.end);
    return held;
}

static void add_held(PeakSearch *plan, UseList *list, const Func *f, int64_t frame, Stretch planned)
{
    const Stretch held = placed(plan, f, frame, planned);
    if (held.begin < held.end)
        append_held(plan, list, held);
}

/* --- Lives --------------------------------------------------------------------------------------- */

static void count_ops(const Func *f, int *ops, int *results)
{
    for (const Op *op = f->first; op; op = op->next) {
        *results += op->results.count;
        ++*ops;
    }
}

static void prolong(Map *lives, const Value *value, int number)
{
    Life *life = map_get(lives, value);
    if (life && life->last < number)
        life->last = number;
}

/* What a step leaves to the next one is in memory up to its last reader there. */
static int find_left(const Func *f, FuncLives *all, Map *lives)
{
    int count = 0;
    for (int i = 0; f->role == STEP && i < f->params.count; i++)
        if (f->params.at[i]->port.kind == PORT_LEFT) {
            all->life[count] = (Life){ .value = f->params.at[i] };
            map_put(lives, f->params.at[i], &all->life[count++]);
        }
    return count;
}

/* All values that ops of `f` define, in order; reading a view is reading the viewed value. */
static int find_lives(PeakSearch *plan, const Func *f, FuncLives *all)
{
    Map lives = { .arena = &plan->m->arena };
    int number = 0, count = find_left(f, all, &lives);
    for (const Op *op = f->first; op; op = op->next, number++) {
        for (int i = 0; i < op->args.count; i++)
            prolong(&lives, arg(op, i), number);
        for (int i = 0; i < op->results.count; i++) {
            all->life[count] = (Life){ .value = op->results.at[i], .op = op, .first = number, .last = number };
            map_put(&lives, op->results.at[i], &all->life[count++]);
        }
    }
    for (int i = 0; i < f->results.count; i++)
        prolong(&lives, f->results.at[i], number);
    for (int i = 0; i < count; i++) /* until it is waited for, a collective reads its operand */
        if (all->life[i].op && all->life[i].op->attrs.started)
            prolong(&lives, arg(all->life[i].op, 0), all->life[i].last);
    for (int i = count - 1; i >= 0; i--)
        if (all->life[i].op && info(all->life[i].op)->family == VIEW)
            prolong(&lives, arg(all->life[i].op, 0), all->life[i].last);
    return count;
}

static void find_place(PeakSearch *plan, Life *life)
{
    const Storage *place = life->value->storage;
    const Value *held = shown_by(life->value);
    if (!place || place->base != IN_FRAME || (plan->slots && held->def && ring_of(plan->slots, held) >= 0))
        return;
    life->planned = (Stretch){ .begin = place->at,
                               .end = place->at + span_bytes(plan->m, life->value),
                               .kind = class_of(plan->classes, life->value),
                               .value = life->value,
                               .op = life->op };
    life->on = plan->kinds->count == 1 ? ALL_RANKS : holders_of(plan->m, held);
}

static Moment moment_of(PeakSearch *plan, const Op *op)
{
    const Func *callee = function_called_by(plan->m, op);
    return (Moment){ .callee = callee,
                     .on = plan->kinds->count == 1 ? ALL_RANKS : ranks_running(plan->m, op),
                     .beside = callee ? iteration_buffers(plan->m, op, callee) : scratch_of(plan->kinds, op) };
}

static const FuncLives *lives_of(PeakSearch *plan, const Func *f)
{
    FuncLives *all = map_get(&plan->classes->lives, f);
    if (all)
        return all;
    all = NEW(&plan->m->arena, FuncLives);
    map_put(&plan->classes->lives, f, all);
    count_ops(f, &all->moments, &all->lives);
    all->life = NEW_ARRAY(&plan->m->arena, Life, all->lives + f->params.count + 1);
    all->moment = NEW_ARRAY(&plan->m->arena, Moment, all->moments + 1);
    all->lives = find_lives(plan, f, all);
    for (int i = 0; i < all->lives; i++)
        find_place(plan, &all->life[i]);
    int number = 0;
    for (const Op *op = f->first; op; op = op->next)
        all->moment[number++] = moment_of(plan, op);
    return all;
}

/* --- Live values while an op runs ---------------------------------------------------------------- */

/* One call: its values where this kind of rank has them, and for each op a bound of the bytes in use while it runs:
 * the sum of all ranges and of its callee's frame; -1: it is not run. */
typedef struct {
    const Func *f;
    int64_t frame; /* its address in the arena; 0: storage is relative to the arena */
    const FuncLives *all;
    Stretch *held; /* by life; empty: it has no memory for it */
    int64_t *bound;
} CallLives;

static void hold_values(PeakSearch *plan, UseList *list, const CallLives *c, int number)
{
    for (int i = 0; i < c->all->lives; i++)
        if (c->all->life[i].first <= number && number <= c->all->life[i].last && c->held[i].begin < c->held[i].end)
            append_held(plan, list, c->held[i]);
}

static void hold_scratch(PeakSearch *plan, UseList *list, const CallLives *c, const Op *op, const Moment *moment)
{
    const int64_t begin = op->attrs.frame + (moment->callee ? aligned_bytes(moment->callee->frame) : 0);
    const int64_t kept = moment->callee ? op->attrs.slots : 0; /* of micro-batches in flight */
    const int64_t end = begin + moment->beside, slots = end - kept;
    if (slots > begin)
        add_held(plan, list, c->f, c->frame, (Stretch){ .begin = begin, .end = slots, .kind = WORKSPACE, .op = op });
    if (kept)
        add_held(plan, list, c->f, c->frame,
                 (Stretch){ .begin = slots, .end = end, .kind = ACTIVATIONS, .is_slots = true, .op = op });
}

static int earlier_first(const void *a, const void *b)
{
    const Stretch *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
           : x->end != y->end   ? (x->end > y->end) - (x->end < y->end)
                                : (int)x->kind - (int)y->kind;
}

/* The bytes that at least one range covers; sorts the list. */
static int64_t bytes_held(UseList *list)
{
    int64_t bytes = 0, end = 0;
    if (list->count)
        qsort(list->at, (size_t)list->count, sizeof *list->at, earlier_first);
    for (int i = 0; i < list->count; i++) {
        int64_t begin = list->at[i].begin > end ? list->at[i].begin : end;
        bytes += list->at[i].end > begin ? list->at[i].end - begin : 0;
        end = list->at[i].end > end ? list->at[i].end : end;
    }
    return bytes;
}

/* --- The peak --------------------------------------------------------------------------------- */

/* The peak of one call of a function: its op, the live ranges, and their bytes. */
typedef struct {
    const Func *func;
    const Op *op;
    UseList held;
    int64_t bytes;
} Peak;

static CallLives lives_of_call(PeakSearch *plan, const Func *f, int64_t frame)
{
    CallLives c = { .f = f, .frame = frame, .all = lives_of(plan, f) };
    const int lives = c.all->lives, moments = c.all->moments;
    int64_t sum = 0;
    c.held = NEW_ARRAY(&plan->m->arena, Stretch, lives + 1);
    c.bound = NEW_ARRAY(&plan->m->arena, int64_t, moments + 2);
    for (int i = 0; i < lives; i++) {
        const Life *life = &c.all->life[i];
        const bool outlives = !frame && life->planned.begin < plan->base;
        if (outlives || !(life->on >> plan->kind & 1))
            continue;
        c.held[i] = placed(plan, f, frame, life->planned);
        c.bound[life->first] += c.held[i].end - c.held[i].begin;
        c.bound[life->last + 1 < moments ? life->last + 1 : moments] -= c.held[i].end - c.held[i].begin;
    }
    for (int number = 0; number < moments; number++) {
        const Moment *moment = &c.all->moment[number];
        const int64_t below = moment->callee ? frame_on(plan->kinds, moment->callee, plan->kind) : 0;
        sum += c.bound[number];
        c.bound[number] = moment->on >> plan->kind & 1 ? sum + moment->beside + below : -1;
    }
    return c;
}

static Peak find_peak(PeakSearch *plan, const Func *f, int64_t frame);

/* While one op runs, or at the peak of its callee; `room` is for the list. */
static Peak peak_of_op(PeakSearch *plan, const CallLives *c, const Op *op, int number, UseList room)
{
    const Moment *moment = &c->all->moment[number];
    Peak here = { .func = c->f, .op = op, .held = { .room = room.room, .at = room.at } };
    if (moment->callee)
        here = find_peak(plan, moment->callee,
                         c->frame + place_on(kind_frame(plan->kinds, c->f), plan->kind, op->attrs.frame));
    if (!here.op) /* a rank of this kind runs nothing of the callee */
        here.func = c->f, here.op = op;
    hold_values(plan, &here.held, c, number);
    hold_scratch(plan, &here.held, c, op, moment);
    here.bytes = bytes_held(&here.held);
    return here;
}

/* The first op of the most bytes.  Ranges seldom overlap, so the op of the highest bound is near the peak: what it
 * holds excludes nearly all others by their bounds. */
static Peak find_peak(PeakSearch *plan, const Func *f, int64_t frame)
{
    const CallLives c = lives_of_call(plan, f, frame);
    Peak peak = { .func = f, .bytes = -1 };
    UseList room = { 0 }; /* of a list that is not the peak */
    const Op *highest = NULL;
    int highest_number = 0, number = 0;
    for (const Op *op = f->first; op; op = op->next, number++)
        if (c.bound[number] >= 0 && (!highest || c.bound[number] > c.bound[highest_number]))
            highest = op, highest_number = number;
    const Peak likely = highest ? peak_of_op(plan, &c, highest, highest_number, (UseList){ 0 }) : peak;
    number = 0;
    for (const Op *op = f->first; op; op = op->next, number++) {
        if (c.bound[number] < likely.bytes || c.bound[number] <= peak.bytes)
            continue;
        const Peak here = op == highest ? likely : peak_of_op(plan, &c, op, number, room);
        const bool is_peak = here.bytes > peak.bytes;
        room = is_peak ? peak.held : here.held;
        peak = is_peak ? here : peak;
    }
    return peak;
}

/* --- Values that outlive the step ---------------------------------------------------------------- */

static void hold_params(PeakSearch *plan, UseList *list, const Func *f, Map *seen)
{
    for (int i = 0; i < f->params.count; i++) {
        const Value *param = f->params.at[i];
        if (param->type.tier || map_get(seen, param->storage)) /* evaluation reads the weights of the step */
            continue;
        map_put(seen, param->storage, param->storage);
        int64_t begin = param->storage->at, end = begin + span_bytes(plan->m, param);
        plan->base = end > plan->base && param->port.kind != PORT_LEFT ? end : plan->base;
        if (is_on(param->type.on, plan->kind))
            add_held(plan, list, f, 0,
                     (Stretch){ .begin = begin, .end = end, .kind = class_of(plan->classes, param), .value = param });
    }
}

/* --- By class ------------------------------------------------------------------------------------- */

/* Where a range begins or ends. */
typedef struct {
    int64_t at;
    TensorClass kind;
    int more; /* ranges of this class, from here on: 1 or -1 */
} Edge;

static int by_place(const void *a, const void *b)
{
    int64_t x = ((const Edge *)a)->at, y = ((const Edge *)b)->at;
    return (x > y) - (x < y);
}

/* Each byte counts for the first class that holds it; nothing changes between two neighbouring edges. */
static void count_classes(const UseList *list, int64_t bytes[N_CLASSES])
{
    Arena scratch = { 0 };
    Edge *edge = NEW_ARRAY(&scratch, Edge, 2 * list->count + 1);
    int edges = 0, ranges[N_CLASSES] = { 0 };
    for (int i = 0; i < list->count; i++) {
        edge[edges++] = (Edge){ list->at[i].begin, list->at[i].kind, 1 };
        edge[edges++] = (Edge){ list->at[i].end, list->at[i].kind, -1 };
    }
    qsort(edge, (size_t)edges, sizeof *edge, by_place);
    for (int i = 0; i + 1 < edges; i++) {
        int kind = 0;
        ranges[edge[i].kind] += edge[i].more;
        while (kind < N_CLASSES && !ranges[kind])
            kind++;
        if (kind < N_CLASSES)
            bytes[kind] += edge[i + 1].at - edge[i].at;
    }
    arena_free(&scratch);
}

/* Keeps one of several ranges with the same bytes and class. */
static int drop_shadowed(UseList *list)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        const Stretch *held = &list->at[i], *before = kept ? &list->at[kept - 1] : NULL;
        if (!before || before->begin != held->begin || before->end != held->end || before->kind != held->kind)
            list->at[kept++] = *held;
    }
    return kept;
}

int64_t bytes_of_held(const Module *m, const Stretch *held, int kind)
{
    const int64_t span = held->end - held->begin, own = held->value ? part_bytes(m, &held->value->type, kind) : span;
    return own < span ? own : span;
}

/* `lasting`: what outlives a step, in all programs. */
static PeakSearch begin_search(Classes *classes, Kinds *kinds, int kind, UseList *lasting)
{
    PeakSearch plan = { .classes = classes, .m = classes->m, .kinds = kinds, .kind = kind };
    const Op *loop = scheduled_loop(plan.m);
    plan.slots = loop ? slots_of_loop(plan.m, loop) : NULL;
    Map seen = { .arena = &plan.m->arena };
    for (int i = 0; i < N_PROGRAMS; i++)
        if (func_with_role(plan.m, programs[i]))
            hold_params(&plan, lasting, func_with_role(plan.m, programs[i]), &seen);
    plan.base = aligned_bytes(plan.base);
    return plan;
}

static Peak peak_of_program(PeakSearch *plan, const Func *f, const UseList *lasting)
{
    Peak peak = find_peak(plan, f, 0);
    for (int i = 0; i < lasting->count; i++)
        if ((returns_state(f) && f->role != STEP) || lasting->at[i].value->port.kind != PORT_LEFT)
            append_held(plan, &peak.held, lasting->at[i]);
    peak.bytes = bytes_held(&peak.held);
    return peak;
}

/* --- Over the step -------------------------------------------------------------------------------- */

typedef struct {
    PeakSearch plan;
    MemoryVisit visit;
    void *context;
    UseList held; /* at this call: values that outlive the step, those of callers, and those of the op itself */
} MemoryWalk;

static void walk_memory(MemoryWalk *w, const Func *f, int64_t frame)
{
    const CallLives c = lives_of_call(&w->plan, f, frame);
    int number = 0;
    for (const Op *op = f->first; op; op = op->next, number++) {
        const Moment *moment = &c.all->moment[number];
        const int around = w->held.count;
        int64_t bytes[N_CLASSES] = { 0 };
        if (c.bound[number] < 0)
            continue;
        hold_values(&w->plan, &w->held, &c, number);
        hold_scratch(&w->plan, &w->held, &c, op, moment);
        if (moment->callee) {
            walk_memory(w, moment->callee,
                        frame + place_on(kind_frame(w->plan.kinds, f), w->plan.kind, op->attrs.frame));
        } else {
            count_classes(&w->held, bytes);
            w->visit(w->context, f, op, bytes);
        }
        w->held.count = around;
    }
}

void visit_memory(Classes *classes, Kinds *kinds, int kind, MemoryVisit visit, void *context)
{
    UseList lasting = { 0 };
    MemoryWalk w = { begin_search(classes, kinds, kind, &lasting), visit, context, { 0 } };
    const Func *step = func_with_role(classes->m, STEP);
    for (int i = 0; i < lasting.count; i++)
        if (lasting.at[i].value->port.kind != PORT_LEFT)
            append_held(&w.plan, &w.held, lasting.at[i]);
    if (step)
        walk_memory(&w, step, 0);
}

int64_t program_peak(Classes *classes, Kinds *kinds, int kind, FuncRole role)
{
    UseList lasting = { 0 };
    PeakSearch plan = begin_search(classes, kinds, kind, &lasting);
    const Func *f = func_with_role(plan.m, role);
    return f ? peak_of_program(&plan, f, &lasting).bytes : 0;
}

MemoryUse memory_use(Classes *classes, Kinds *kinds, int kind)
{
    UseList lasting = { 0 };
    PeakSearch plan = begin_search(classes, kinds, kind, &lasting);
    const Func *step = func_with_role(plan.m, STEP);
    MemoryUse use = { .arena = arena_on(kinds, kind) };
    if (step) {
        Peak peak = peak_of_program(&plan, step, &lasting);
        use.op = peak.op, use.func = peak.func;
        count_classes(&peak.held, use.bytes);
        for (int i = 0; i < peak.held.count; i++)
            use.slots += peak.held.at[i].is_slots ? peak.held.at[i].end - peak.held.at[i].begin : 0;
        use.nheld = drop_shadowed(&peak.held);
        use.held = peak.held.at;
    }
    use.unused = use.arena;
    for (int i = 0; i < N_CLASSES; i++)
        use.unused -= use.bytes[i];
    return use;
}
