/* verify_kinds.c -- checks that each kind of rank has memory for all that it reads and writes.
 *
 * The plan is one for all ranks, and verify_memory.c checks it.  A stage of a pipeline leaves gaps of it out: see
 * kinds/kinds.h, which finds them from where values are made.  Here each program is traversed as a rank of each kind
 * runs it, with the first and the last iteration of each loop; whatever an op that it runs reads or writes, and the
 * frame of what it calls, must be free of gaps.
 */
#include "kinds/kinds.h"
#include "region.h"
#include "schedule/slots.h"
#include "stages.h"
#include "storage.h"

typedef struct {
    Module *m;
    Kinds *kinds;
    int kind;
    bool last;                  /* the last iteration of each loop; else the first one */
    const PipelineSlots *slots; /* NULL: no schedule */
    int64_t slots_at;           /* in the arena */
} Check;

/* An address in the plan of a frame. */
typedef struct {
    const Func *frame;
    int64_t at;
} Spot;

/* One call of a function, with its pointer arguments. */
typedef struct {
    const Func *f;
    const Spot *pointer;
} Call;

static Spot in_slot(const Check *c, const Value *value, const Ring *ring)
{
    const int64_t slot = c->last ? ring->slots[c->kind] - 1 : 0;
    return (Spot){ func_with_role(c->m, STEP),
                   c->slots_at + ring->offset + slot * ring->bytes + value->storage->at - ring->begin };
}

static Spot spot_of(const Check *c, const Call *call, const Value *value)
{
    const Storage *s = value->storage;
    const Value *held = shown_by(value);
    const int ring = s->base == IN_FRAME && c->slots && held->def ? ring_of(c->slots, held) : -1;
    if (ring >= 0)
        return in_slot(c, value, &c->slots->ring[ring]);
    if (s->base == IN_FRAME)
        return (Spot){ call->f, s->at };
    return (Spot){ call->pointer[s->pointer].frame, call->pointer[s->pointer].at + s->at };
}

static bool is_held(const Check *c, Spot spot, int64_t bytes)
{
    const KindFrame *frame = kind_frame(c->kinds, spot.frame);
    bool good = spot.at + bytes <= spot.frame->frame;
    for (int i = 0; i < frame->count[c->kind] && bytes; i++) {
        const Gap *gap = &frame->gap[c->kind][i];
        good &= gap->at >= spot.at + bytes || gap->at + gap->bytes <= spot.at;
    }
    return good;
}

static bool check_bytes(const Check *c, const Call *call, const Op *op, const Value *value, int64_t bytes)
{
    if (is_held(c, spot_of(c, call, value), bytes))
        return true;
    error_at(c->m->diags, (Where){ .at = op->loc }, "internal: stage %d has no memory for %%%s of @%s, in %s", c->kind,
             value->name, call->f->name, info(op)->name);
    return false;
}

static bool check_value(const Check *c, const Call *call, const Op *op, const Value *value)
{
    return check_bytes(c, call, op, value, span_bytes(c->m, value));
}

/* Of a stack, the copies of this stage. */
static bool check_own(const Check *c, const Call *call, const Op *op, const Value *value)
{
    const Dim *dim = value->type.rank ? &value->type.dim[0] : NULL;
    const int64_t own = dim && dim->split.parts ? part_size(c->m, dim, c->kind) : -1;
    const int64_t missing = own < 0 ? 0 : (local_size(c->m, dim) - own) * value->storage->stride[0];
    return check_bytes(c, call, op, value,
                       own == 0 ? 0 : span_bytes(c->m, value) - missing * dtype_bytes(value->type.dtype));
}

/* What is between stages is read where it comes from, and written where it goes. */
static bool touches(const Check *c, const Op *op, const Value *value)
{
    return !(info(op)->traits & MOVES) || is_on(value->type.on, c->kind);
}

static bool check_op(const Check *c, const Call *call, const Op *op)
{
    if (!(stages_running(c->m, op) >> c->kind & 1))
        return true;
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        const Value *value = arg_or_result(op, i);
        const bool in_slices =
            info(op)->family == COLLECTIVE; /* of a stack, the messages have each rank's own copies */
        if (touches(c, op, value) && !(in_slices ? check_own : check_value)(c, call, op, value))
            return false;
    }
    const int64_t scratch = scratch_of(c->kinds, op);
    if (!scratch || is_held(c, (Spot){ call->f, op->attrs.frame }, scratch))
        return true;
    error_at(c->m->diags, (Where){ .at = op->loc }, "internal: stage %d has no memory for scratch of @%s, in %s",
             c->kind, call->f->name, info(op)->name);
    return false;
}

/* --- Calls and loops ------------------------------------------------------------------------------------- */

static bool check_func(const Check *c, const Call *call);

/* What the callee sees of a value in that iteration. */
static Spot slice_of(const Check *c, const Call *call, const Op *op, const Value *value)
{
    const Dim *dim = op->attrs.dims.count ? &op->attrs.dims.dim[0] : NULL;
    const int at = dim ? find_dim(&value->type, dim->name) : -1;
    Spot spot = spot_of(c, call, value);
    if (at < 0 || !c->last)
        return spot;
    const int64_t count = runs_in_stages(op) ? part_size(c->m, dim, c->kind) : dim->size;
    spot.at += (count - 1) * value->storage->stride[at] * dtype_bytes(value->type.dtype);
    return spot;
}

/* What the callee sees as its i-th parameter: of what is carried, what is there at first, or what an iteration leaves.
 * Stages but the first one receive it into the buffers of the loop, unless the schedule does that. */
static const Value *passed_on(const Check *c, const Call *call, const Op *op, const Func *callee, int i)
{
    if (i >= op->attrs.carried)
        return arg(op, i);
    const bool receives =
        runs_in_stages(op) && !is_part_of_micro(c->m, call->f) && !is_on(end_stage(c->m, op, false), c->kind);
    return is_carried_in_place(op, callee, i) || receives || c->last ? op->results.at[i] : arg(op, i);
}

/* A sum that an action leaves elsewhere is copied to where the next micro-batch reads it. */
static bool check_sums(const Check *c, const Call *call, const Op *op, const Func *micro)
{
    bool good = true;
    for (int i = 0; op->attrs.stages && good && i < op->attrs.carried; i++)
        if (!is_carried_in_place(op, micro, i) && stages_needing(c->m->needed, micro->results.at[i]) >> c->kind & 1)
            good = check_own(c, call, op, op->results.at[i]);
    return good;
}

static bool check_call(const Check *c, const Call *call, const Op *op, const Func *callee)
{
    const int count = callee->params.count + callee->results.count;
    Spot *pointer = NEW_ARRAY(&c->m->arena, Spot, count + 1);
    for (int i = count - 1; i >= 0; i--) {
        const int result = i - callee->params.count;
        const Value *inside = result < 0 ? callee->params.at[i] : callee->results.at[result];
        const Value *outside = result < 0 ? passed_on(c, call, op, callee, i) : op->results.at[result];
        if (inside->storage->base == BY_POINTER) {
            pointer[inside->storage->pointer] = slice_of(c, call, op, outside);
            pointer[inside->storage->pointer].at -= inside->storage->at;
        }
    }
    if (!is_held(c, (Spot){ call->f, op->attrs.frame }, frame_on(c->kinds, callee, c->kind))) {
        error_at(c->m->diags, (Where){ .at = op->loc }, "internal: stage %d has no memory for the frame of @%s",
                 c->kind, callee->name);
        return false;
    }
    return check_sums(c, call, op, callee) && check_func(c, &(Call){ callee, pointer });
}

/* Does the stage have no copies of the loop? */
static bool is_empty(const Check *c, const Op *op)
{
    return runs_in_stages(op) &&
           (!is_on(stages_passed(c->m, op), c->kind) || !part_size(c->m, &op->attrs.dims.dim[0], c->kind));
}

static bool check_func(const Check *c, const Call *call)
{
    bool good = true;
    for (const Op *op = call->f->first; op && good; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(c->m, op->attrs.callee) : NULL;
        if (callee && callee->role != KERNEL)
            good = is_empty(c, op) || check_call(c, call, op, callee);
        else if (info(op)->family != VIEW)
            good = check_op(c, call, op);
    }
    return good;
}

/* All programs have it at the same place. */
static bool check_place(const Check *c, const Func *f, const Value *value)
{
    const Func *step = func_with_role(c->m, STEP);
    const int64_t at = value->storage->at, own = place_on(kind_frame(c->kinds, f), c->kind, at);
    if (own == place_on(kind_frame(c->kinds, step), c->kind, at))
        return true;
    error_at(c->m->diags, (Where){ .at = f->loc }, "internal: stage %d has %%%s at another place in @%s than in @%s",
             c->kind, value->name, f->name, step->name);
    return false;
}

/* What is fed is the same on all ranks; what outlives a step is where its type says. */
static bool check_params(const Check *c, const Call *call)
{
    bool good = true;
    for (int i = 0; i < call->f->params.count && good; i++) {
        const Value *param = call->f->params.at[i];
        good = check_place(c, call->f, param) &&
               (!is_on(param->type.on, c->kind) || check_own(c, call, call->f->first, param));
    }
    return good;
}

static bool check_programs(Check *c)
{
    static const FuncRole programs[] = { STEP, EVAL, PREDICT };
    bool good = true;
    for (int i = 0; i < 3 && good; i++) {
        const Call call = { func_with_role(c->m, programs[i]), NULL };
        good = !call.f || !call.f->first || (check_params(c, &call) && check_func(c, &call));
    }
    return good;
}

static bool is_placed(const Func *f) { return f && f->params.count && f->params.at[0]->storage; }

bool verify_kinds(Module *m)
{
    if (pipeline_axis(m) < 0 || !is_placed(func_with_role(m, STEP)))
        return true;
    Kinds kinds = rank_kinds(m);
    const Op *loop = micro_loop(m);
    Check c = { .m = m, .kinds = &kinds };
    if (loop && loop->attrs.stages) {
        const Func *micro = find_func(m, loop->attrs.callee);
        c.slots = pipeline_slots(m, loop);
        c.slots_at =
            loop->attrs.frame + aligned_bytes(micro->frame) + iteration_buffers(m, loop, micro) - loop->attrs.slots;
    }
    bool good = true;
    for (c.kind = 0; c.kind < kinds.count && good; c.kind++)
        for (int last = 0; last < 2 && good; last++) {
            c.last = last;
            good = check_programs(&c);
        }
    return good;
}
