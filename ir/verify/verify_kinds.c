/* verify_kinds.c -- checks that each kind of rank has memory for all that it reads and writes.
 *
 * The plan is one for all ranks, and verify_memory.c checks it.  A stage of a pipeline leaves gaps of it out: see
 * kinds/kinds.h, which finds them from where values are made.  Here each program is traversed as ranks of all
 * kinds run it, with the first and the last iteration of each loop; whatever an op that it runs reads or writes, and
 * the frame of what it calls, must be free of gaps.
 */
#include "kinds/kinds.h"
#include "region.h"
#include "schedule/slots.h"
#include "stages.h"
#include "storage.h"

typedef struct {
    Module *m;
    Kinds *kinds;
    bool last;                  /* the last iteration of each loop; else the first one */
    const PipelineSlots *slots; /* NULL: no schedule */
    int64_t slots_at;           /* in the arena */
} Check;

/* An address in the plan of a frame. */
typedef struct {
    const Func *frame;
    int64_t at;
} Spot;

/* One call of a function: the kinds that run it, as a set, and the pointer arguments of each. */
typedef struct {
    const Func *f;
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
        return (Spot){ func_with_role(c->m, STEP),
                       c->slots_at + ring->offset + slot * ring->bytes + s->at - ring->begin };
    }
    if (s->base == IN_FRAME)
        return (Spot){ call->f, s->at };
    const Spot *pointer = &call->pointer[kind][s->pointer];
    return (Spot){ pointer->frame, pointer->at + s->at };
}

static bool is_held(const Check *c, Spot spot, int64_t bytes, int kind)
{
    const KindFrame *frame = kind_frame(c->kinds, spot.frame);
    return spot.at + bytes <= spot.frame->frame && !meets_gap(frame, kind, spot.at, bytes);
}

/* Has each of these kinds memory for it? */
static bool check_value(const Check *c, const Call *call, const Op *op, const Value *value, uint64_t on)
{
    const int64_t bytes = span_bytes(c->m, value);
    const Ring *ring = ring_holding(c, value);
    for (int kind = 0; kind < c->kinds->count; kind++) {
        if (!(on >> kind & 1) || is_held(c, spot_of(c, call, value, ring, kind), bytes, kind))
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
    return info(op)->traits & MOVES && value->type.on.at ? value->type.on.at : ALL_STAGES;
}

static bool check_op(const Check *c, const Call *call, const Op *op)
{
    const uint64_t on = call->on & stages_running(c->m, op);
    const int64_t scratch = scratch_of(c->kinds, op);
    for (int i = 0; i < op->args.count + op->results.count && on; i++)
        if (!check_value(c, call, op, arg_or_result(op, i), on & stages_touching(op, arg_or_result(op, i))))
            return false;
    for (int kind = 0; kind < c->kinds->count && scratch; kind++) {
        if (!(on >> kind & 1) || is_held(c, (Spot){ call->f, op->attrs.frame }, scratch, kind))
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
static Spot slice_of(const Check *c, const Call *call, const Op *op, const Value *value, int kind)
{
    const Dim *dim = op->attrs.dims.count ? &op->attrs.dims.dim[0] : NULL;
    const int at = dim ? find_dim(&value->type, dim->name) : -1;
    Spot spot = spot_of(c, call, value, ring_holding(c, value), kind);
    if (at < 0 || !c->last)
        return spot;
    const int64_t count = runs_in_stages(op) ? part_size(c->m, dim, kind) : dim->size;
    spot.at += (count - 1) * value->storage->stride[at] * dtype_bytes(value->type.dtype);
    return spot;
}

/* What the callee sees as its i-th parameter: of what is carried, what is there at first, or what an iteration leaves.
 * Stages but the first one receive it into the buffers of the loop, unless the schedule does that. */
static const Value *passed_on(const Check *c, const Call *call, const Op *op, const Func *callee, int i, int kind)
{
    if (i >= op->attrs.carried)
        return arg(op, i);
    const bool receives =
        runs_in_stages(op) && !is_part_of_micro(c->m, call->f) && !is_on(end_stage(c->m, op, false), kind);
    return is_carried_in_place(op, callee, i) || receives || c->last ? op->results.at[i] : arg(op, i);
}

static Spot *pointers_of(const Check *c, const Call *call, const Op *op, const Func *callee, int kind)
{
    const int count = callee->params.count + callee->results.count;
    Spot *pointer = NEW_ARRAY(&c->m->arena, Spot, count + 1);
    for (int i = count - 1; i >= 0; i--) {
        const int result = i - callee->params.count;
        const Value *inside = result < 0 ? callee->params.at[i] : callee->results.at[result];
        if (inside->storage->base != BY_POINTER)
            continue;
        const Value *outside = result < 0 ? passed_on(c, call, op, callee, i, kind) : op->results.at[result];
        pointer[inside->storage->pointer] = slice_of(c, call, op, outside, kind);
        pointer[inside->storage->pointer].at -= inside->storage->at;
    }
    return pointer;
}

/* A sum that an action leaves elsewhere is copied to where the next micro-batch reads it. */
static bool check_sums(const Check *c, const Call *call, const Op *op, const Func *micro, uint64_t on)
{
    bool good = true;
    for (int i = 0; op->attrs.stages && good && i < op->attrs.carried; i++)
        if (!is_carried_in_place(op, micro, i))
            good = check_value(c, call, op, op->results.at[i], on & stages_needing(c->m->needed, micro->results.at[i]));
    return good;
}

/* The kinds that have copies of the loop. */
static uint64_t kinds_running(const Check *c, const Op *op)
{
    uint64_t on = 0;
    for (int kind = 0; kind < c->kinds->count; kind++)
        if (!runs_in_stages(op) ||
            (is_on(stages_passed(c->m, op), kind) && part_size(c->m, &op->attrs.dims.dim[0], kind)))
            on |= UINT64_C(1) << kind;
    return on;
}

static bool check_call(const Check *c, const Call *call, const Op *op, const Func *callee)
{
    const uint64_t on = call->on & kinds_running(c, op);
    Spot **pointer = NEW_ARRAY(&c->m->arena, Spot *, c->kinds->count);
    for (int kind = 0; kind < c->kinds->count; kind++) {
        if (!(on >> kind & 1))
            continue;
        pointer[kind] = pointers_of(c, call, op, callee, kind);
        if (is_held(c, (Spot){ call->f, op->attrs.frame }, frame_on(c->kinds, callee, kind), kind))
            continue;
        error_at(c->m->diags, (Where){ .at = op->loc }, "internal: stage %d has no memory for the frame of @%s", kind,
                 callee->name);
        return false;
    }
    return !on || (check_sums(c, call, op, callee, on) && check_func(c, &(Call){ callee, on, pointer }));
}

static bool check_func(const Check *c, const Call *call)
{
    bool good = true;
    for (const Op *op = call->f->first; op && good; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(c->m, op->attrs.callee) : NULL;
        if (callee && callee->role != KERNEL)
            good = check_call(c, call, op, callee);
        else if (info(op)->family != VIEW)
            good = check_op(c, call, op);
    }
    return good;
}

/* What is fed is the same on all ranks; what outlives a step is where its type says. */
static bool check_params(const Check *c, const Call *call)
{
    bool good = true;
    for (int i = 0; i < call->f->params.count && good; i++) {
        const Value *param = call->f->params.at[i];
        good = check_value(c, call, call->f->first, param, param->type.on.at ? param->type.on.at : ALL_STAGES);
    }
    return good;
}

static bool check_programs(const Check *c)
{
    static const FuncRole programs[] = { STEP, EVAL, PREDICT };
    bool good = true;
    for (int i = 0; i < 3 && good; i++) {
        const Call call = { func_with_role(c->m, programs[i]), ALL_STAGES, NULL };
        good = !call.f || !call.f->first || (check_params(c, &call) && check_func(c, &call));
    }
    return good;
}

static bool is_placed(const Func *f) { return f && f->params.count && f->params.at[0]->storage; }

bool verify_kinds(Module *m)
{
    if (pipeline_axis(m) < 0 || !is_placed(func_with_role(m, STEP)))
        return true;
    const Op *loop = micro_loop(m);
    Check c = { .m = m, .kinds = kinds_again(m) };
    if (loop && loop->attrs.stages) {
        const Func *micro = find_func(m, loop->attrs.callee);
        c.slots = pipeline_slots(m, loop);
        c.slots_at =
            loop->attrs.frame + aligned_bytes(micro->frame) + iteration_buffers(m, loop, micro) - loop->attrs.slots;
    }
    bool good = check_programs(&c);
    c.last = true;
    return good && check_programs(&c);
}
