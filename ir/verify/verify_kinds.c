/* verify_kinds.c -- checks that each kind of rank has memory for all that it reads and writes.
 *
 * The plan is one for all ranks, and verify_memory.c checks it.  A stage of a pipeline leaves gaps of it out: see
 * kinds/kinds.h, which finds them from where values are made.  Here each program is traversed as ranks of all
 * kinds run it, with the first and the last iteration of each loop; whatever an op that it runs reads or writes, and
 * the frame of what it calls, must be free of gaps; and what it passes by one pointer must lie as the plan has it.
 */
#include "kinds/kinds.h"
#include "micro.h"
#include "mir/pipeline_text.h"
#include "needed.h"
#include "schedule/slots.h"
#include "split_loop.h"
#include "storage.h"
#include "tier.h"

typedef struct {
    Module *m;
    Kinds *kinds;
    bool last;               /* the last iteration of each loop; else the first one */
    const MicroSlots *slots; /* NULL: no schedule */
    int64_t slots_at;        /* in the arena */
    const KindFrame *arena;
} Check;

/* An address in the plan of a frame. */
typedef struct {
    const KindFrame *frame;
    int64_t at;
} Spot;

/* One call of a function: the kinds that run it, as a set, and the pointer arguments of each. */
typedef struct {
    const Func *f;
    const KindFrame *frame; /* of f */
    uint64_t on;
    Spot *const *pointer; /* by kind */
} Call;

static const Ring *ring_holding(const Check *c, const Value *value)
{
    const Value *held = shown_by(value);
    const int ring = value->storage->base == IN_FRAME && c->slots && held->def ? ring_of(c->slots, held) : -1;
    return ring >= 0 ? &c->slots->ring[ring] : NULL;
}

static Spot spot_of(const Check *c, const Call *call, const Value *value, const Ring *ring, int kind)
{
    const Storage *s = value->storage;
    if (ring) {
        const int64_t slot = c->last ? ring->slots[kind] - 1 : 0;
        return (Spot){ c->arena, c->slots_at + ring->offset + slot * ring->bytes + s->at - ring->begin };
    }
    if (s->base != BY_POINTER)
        return (Spot){ s->base == IN_TIER ? c->arena : call->frame, s->at };
    const Spot *pointer = &call->pointer[kind][s->pointer];
    return (Spot){ pointer->frame, pointer->at + s->at };
}

static bool is_held(Spot spot, int64_t bytes, int kind)
{
    if (spot.at >= far_begin(spot.frame->bytes)) /* all ranks have all of it */
        return true;
    return spot.at + bytes <= spot.frame->bytes && !meets_gap(spot.frame, kind, spot.at, bytes);
}

/* The bytes of those copies of a stack that one kind of rank has. */
static int64_t bytes_of_part(const Check *c, const Value *value, int64_t whole, int kind)
{
    const Dim *dim = &value->type.dim[0];
    const int64_t part = part_size(c->m, dim, kind), missing = local_size(c->m, dim) - part;
    return part ? whole - missing * value->storage->stride[0] * dtype_bytes(value->type.dtype) : 0;
}

/* Has each of these kinds memory for it; of a stack, and only its `own` copies, for these?  What has one place in all
 * iterations is checked in the first. */
static bool check_value(const Check *c, const Call *call, const Op *op, const Value *value, uint64_t on, bool own)
{
    value = padding_overhangs(c->m, value) ? shown_by(value) : value; /* whose padding is not visited */
    const Ring *ring = ring_holding(c, value);
    if (c->last && !ring && value->storage->base == IN_FRAME)
        return true;
    const int64_t whole = span_bytes(c->m, value);
    const bool is_stack = own && value->type.rank && value->type.dim[0].split.parts;
    const bool by_frame = !ring && !is_stack && value->storage->base == IN_FRAME;
    uint64_t checked = 0; /* kinds with the same gaps are alike, if nothing else says where the value is */
    for (int kind = 0; kind < c->kinds->count; kind++) {
        const uint64_t alike = by_frame ? UINT64_C(1) << call->frame->alike[kind] : 0;
        if (!(on >> kind & 1) || checked & alike)
            continue;
        checked |= alike;
        const int64_t bytes = is_stack ? bytes_of_part(c, value, whole, kind) : whole;
        if (is_held(spot_of(c, call, value, ring, kind), bytes, kind))
            continue;
        error_at(c->m->diags, (Where){ .at = op->loc }, "internal: stage %d has no memory for %%%s of @%s, in %s", kind,
                 value->name, call->f->name, info(op)->name);
        return false;
    }
    return true;
}

/* What is between stages is read where it comes from, and written where it goes. */
static uint64_t stages_touching(const Op *op, const Value *value)
{
    return info(op)->traits & MOVES && value->type.on.at ? value->type.on.at : ALL_RANKS;
}

static bool check_op(const Check *c, const Call *call, const Op *op)
{
    const uint64_t on = call->on & ranks_running(c->m, op);
    const int64_t scratch = scratch_of(c->kinds, op);
    const bool own = info(op)->family == COLLECTIVE; /* of a stack, messages have each rank's own copies */
    for (int i = 0; i < op->args.count + op->results.count && on; i++)
        if (!check_value(c, call, op, arg_or_result(op, i), on & stages_touching(op, arg_or_result(op, i)), own))
            return false;
    for (int kind = 0; kind < c->kinds->count && scratch && !c->last; kind++) {
        if (!(on >> kind & 1) || is_held((Spot){ call->frame, op->attrs.frame }, scratch, kind))
            continue;
        error_at(c->m->diags, (Where){ .at = op->loc }, "internal: stage %d has no memory for scratch of @%s, in %s",
                 kind, call->f->name, info(op)->name);
        return false;
    }
    return true;
}

/* --- Calls and loops ------------------------------------------------------------------------------------- */

static bool check_func(const Check *c, const Call *call);

/* What the callee sees of a value in that iteration. */
static Spot slice_of(const Check *c, const Call *call, const Op *op, const Value *value, const Ring *ring, int kind)
{
    const Dim *dim = op->attrs.dims.count ? &op->attrs.dims.dim[0] : NULL;
    const int at = dim ? find_dim(&value->type, dim->name) : -1;
    Spot spot = spot_of(c, call, value, ring, kind);
    if (at < 0 || !c->last)
        return spot;
    const int64_t count = is_split_loop(op) ? part_size(c->m, dim, kind) : dim->size;
    spot.at += (count - 1) * value->storage->stride[at] * dtype_bytes(value->type.dtype);
    return spot;
}

/* The callee's i-th parameter: a carried value is the initial operand, or the result of an iteration.  Stages but
 * the first one receive it into the buffers of the loop, unless the schedule does that. */
static const Value *passed_on(const Check *c, const Call *call, const Op *op, const Func *callee, int i, int kind)
{
    if (i >= op->attrs.carried)
        return arg(op, i);
    const bool receives =
        is_split_loop(op) && !is_part_of_micro(c->m, call->f) && !is_on(end_rank(c->m, op, false), kind);
    return is_carried_in_place(op, callee, i) || receives || c->last ? op->results.at[i] : arg(op, i);
}

/* The parameters of the callee, then its results. */
static const Value *value_inside(const Func *callee, int i)
{
    return i < callee->params.count ? callee->params.at[i] : callee->results.at[i - callee->params.count];
}

/* The pointer arguments of each kind that runs it. */
static Spot **pointers_of(const Check *c, const Call *call, const Op *op, const Func *callee, uint64_t on)
{
    const int kinds = c->kinds->count, count = callee->params.count + callee->results.count;
    Spot **pointer = NEW_ARRAY(&c->m->arena, Spot *, kinds);
    for (int kind = 0; kind < kinds; kind++)
        pointer[kind] = on >> kind & 1 ? NEW_ARRAY(&c->m->arena, Spot, count + 1) : NULL;
    for (int i = count - 1; i >= 0; i--) {
        const int result = i - callee->params.count;
        const Value *inside = value_inside(callee, i), *last = NULL;
        const Ring *ring = NULL; /* of `last` */
        for (int kind = 0; kind < kinds && inside->storage->base == BY_POINTER; kind++) {
            if (!(on >> kind & 1))
                continue;
            const Value *outside = result < 0 ? passed_on(c, call, op, callee, i, kind) : op->results.at[result];
            ring = outside == last ? ring : ring_holding(c, outside);
            last = outside;
            Spot *spot = &pointer[kind][inside->storage->pointer];
            *spot = slice_of(c, call, op, outside, ring, kind);
            spot->at -= inside->storage->at;
        }
    }
    return pointer;
}

/* The pointer that a kind must pass for that value, as an address of its own; -1: it has no memory for the value. */
static int64_t pointer_on(const Check *c, const Call *call, const Op *op, const Func *callee, int i, int kind)
{
    const Value *outside =
        i < callee->params.count ? passed_on(c, call, op, callee, i, kind) : op->results.at[i - callee->params.count];
    const Spot spot = slice_of(c, call, op, outside, ring_holding(c, outside), kind);
    return !is_held(spot, 1, kind) ? -1 : place_on(spot.frame, kind, spot.at) - value_inside(callee, i)->storage->at;
}

/* What is behind one pointer in the callee is as far apart in the memory of each kind as in the plan. */
static bool check_distances(const Check *c, const Call *call, const Op *op, const Func *callee, uint64_t on)
{
    const int kinds = c->kinds->count, count = callee->params.count + callee->results.count;
    const Value **first = NEW_ARRAY(&c->m->arena, const Value *, count + 1);
    int64_t *known = NEW_ARRAY(&c->m->arena, int64_t, (count + 1) * kinds); /* of `first`, on each kind */
    for (int i = 0; i < count; i++) {
        const Value *inside = value_inside(callee, i);
        const int pointer = inside->storage->pointer;
        if (inside->storage->base != BY_POINTER || first[pointer] == inside)
            continue;
        for (int kind = 0; kind < kinds; kind++) {
            const int64_t at = on >> kind & 1 ? pointer_on(c, call, op, callee, i, kind) : -1;
            int64_t *before = &known[pointer * kinds + kind];
            if (first[pointer] && at >= 0 && *before >= 0 && at != *before) {
                error_at(c->m->diags, (Where){ .at = op->loc },
                         "internal: stage %d has %%%s and %%%s of @%s at another distance than the plan", kind,
                         first[pointer]->name, inside->name, callee->name);
                return false;
            }
            *before = at;
        }
        first[pointer] = inside;
    }
    return true;
}

/* A sum that an action leaves elsewhere is copied to where the next micro-batch reads it. */
static bool check_sums(const Check *c, const Call *call, const Op *op, const Func *micro, uint64_t on)
{
    bool good = true;
    for (int i = 0; op->attrs.stages && good && i < op->attrs.carried; i++)
        if (!is_carried_in_place(op, micro, i))
            good = check_value(c, call, op, op->results.at[i], on & ranks_needing(c->m->needed, micro->results.at[i]),
                               true);
    return good;
}

/* The kinds that have copies of the loop. */
static uint64_t kinds_running(const Check *c, const Op *op)
{
    uint64_t on = 0;
    for (int kind = 0; kind < c->kinds->count; kind++)
        if (ranks_running(c->m, op) >> kind & 1 &&
            (!is_split_loop(op) || part_size(c->m, &op->attrs.dims.dim[0], kind)))
            on |= UINT64_C(1) << kind;
    return on;
}

static bool check_call(const Check *c, const Call *call, const Op *op, const Func *callee)
{
    const uint64_t on = call->on & kinds_running(c, op);
    const KindFrame *frame = kind_frame(c->kinds, callee);
    Spot **pointer = pointers_of(c, call, op, callee, on);
    for (int kind = 0; kind < c->kinds->count; kind++) {
        if (!(on >> kind & 1) ||
            is_held((Spot){ call->frame, op->attrs.frame }, place_on(frame, kind, frame->bytes), kind))
            continue;
        error_at(c->m->diags, (Where){ .at = op->loc }, "internal: stage %d has no memory for the frame of @%s", kind,
                 callee->name);
        return false;
    }
    return !on || (check_distances(c, call, op, callee, on) && check_sums(c, call, op, callee, on) &&
                   check_func(c, &(Call){ callee, frame, on, pointer }));
}

static bool check_func(const Check *c, const Call *call)
{
    bool good = true;
    for (const Op *op = call->f->first; op && good; op = op->next) {
        const Func *callee = function_called_by(c->m, op);
        if (callee)
            good = check_call(c, call, op, callee);
        else if (info(op)->family != VIEW)
            good = check_op(c, call, op);
    }
    return good;
}

/* All programs have it at the same place. */
static bool check_place(const Check *c, const Call *call, const Value *value)
{
    const Func *f = call->f;
    const int64_t at = value->storage->at;
    for (int kind = 0; kind < c->kinds->count && call->frame != c->arena; kind++) {
        if (place_on(call->frame, kind, at) == place_on(c->arena, kind, at))
            continue;
        error_at(c->m->diags, (Where){ .at = f->loc },
                 "internal: stage %d has %%%s at another place in @%s than in @%s", kind, value->name, f->name,
                 func_with_role(c->m, STEP)->name);
        return false;
    }
    return true;
}

/* What is fed is the same on all ranks; what outlives a step is where its type says. */
static bool check_params(const Check *c, const Call *call)
{
    bool good = true;
    for (int i = 0; i < call->f->params.count && good; i++) {
        const Value *param = call->f->params.at[i];
        const uint64_t on = param->type.on.at ? param->type.on.at : ALL_RANKS;
        good = check_place(c, call, param) && check_value(c, call, call->f->first, param, on, true);
    }
    return good;
}

static bool check_programs(const Check *c)
{
    bool good = true;
    for (int i = 0; i < N_PROGRAMS && good; i++) {
        const Func *f = func_with_role(c->m, programs[i]);
        const Call call = { f, f ? kind_frame(c->kinds, f) : NULL, ALL_RANKS, NULL };
        good = !f || !f->first || ((c->last || check_params(c, &call)) && check_func(c, &call));
    }
    return good;
}

static bool is_placed(const Func *f) { return f && f->params.count && f->params.at[0]->storage; }

bool verify_kinds(Module *m)
{
    if (!verify_pipeline_text(m))
        return false;
    if (m->kind_axis < 0 || !is_placed(func_with_role(m, STEP)))
        return true;
    const Op *loop = scheduled_loop(m);
    Check c = { .m = m, .kinds = plan_kinds_again(m) };
    c.arena = kind_frame(c.kinds, func_with_role(m, STEP));
    if (loop) {
        const Func *micro = find_func(m, loop->attrs.callee);
        c.slots = slots_of_loop(m, loop);
        c.slots_at =
            loop->attrs.frame + aligned_bytes(micro->frame) + iteration_buffers(m, loop, micro) - loop->attrs.slots;
    }
    bool good = check_programs(&c);
    c.last = true;
    return good && check_programs(&c);
}
