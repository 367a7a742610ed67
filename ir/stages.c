/* stages.c -- the stages of a pipeline: where the values of a program are, and where they are needed.
 *
 * A pipeline splits the dim of a loop over a mesh axis: each rank along it is a stage, runs the iterations whose slices
 * it holds, and passes what is carried to the next stage.  A type says on which stages a value is; nothing said: on
 * all.
 */
#include "stages.h"

bool is_on(Stages on, int stage) { return !on.at || on.at >> stage & 1; }

bool is_on_all(Stages on, Stages these) { return !on.at || (these.at && !(these.at & ~on.at)); }

bool is_one_stage(Stages on) { return on.at && !(on.at & (on.at - 1)); }

Stages common_stages(Stages a, Stages b)
{
    if (!a.at || !b.at)
        return a.at ? a : b;
    Stages both = { a.axis == b.axis ? a.at & b.at : 0, a.axis };
    return both.at ? both : (Stages){ .axis = -1 };
}

/* Of a loop whose function is not there yet, nothing is known.  The verifier refuses deeper calls, and recursive ones.
 */
static bool leads_through_stages(const Module *m, const Func *f, int depth)
{
    enum { DEEPEST = 32 };
    bool leads = passes_stages(f);
    for (const Op *op = f->first; op && !leads && depth < DEEPEST; op = op->next) {
        const Func *callee = function_called_by(m, op);
        leads = callee && leads_through_stages(m, callee, depth + 1);
    }
    return leads;
}

bool is_staged(const Module *m, const Func *f)
{
    for (int i = 0; i < f->params.count; i++)
        if (f->params.at[i]->type.on.at)
            return true;
    for (int i = 0; i < f->results.count; i++)
        if (f->results.at[i]->type.on.at)
            return true;
    return pipeline_axis(m) >= 0 && leads_through_stages(m, f, 0);
}

bool is_send(const Op *op) { return info(op)->traits & MOVES && info(op)->traits & SENDS; }

bool runs_in_stages(const Op *op)
{
    return info(op)->family == CONTROL && op->attrs.dims.count && op->attrs.dims.dim[0].split.count > 0;
}

int64_t count_passed_on(const Op *loop)
{
    int64_t count = loop->attrs.carried;
    while (count > 0 && arg(loop, (int)count - 1)->type.in_flight)
        count--;
    return count;
}

int64_t rank_iterations(const Module *m, const Op *op)
{
    const Dim *dim = &op->attrs.dims.dim[0];
    return !op->attrs.dims.count ? 1 : runs_in_stages(op) ? local_size(m, dim) : dim->size;
}

void note_pipeline(Module *m, const Op *op)
{
    if (m->stage_axis < 0 && runs_in_stages(op))
        m->stage_axis = op->attrs.dims.dim[0].split.axis[0];
}

bool runs_to_last_stage(const Op *loop) { return !loop->attrs.reverse == !loop->attrs.dims.dim[0].split.reversed; }

Stages stages_passed(const Module *m, const Op *loop)
{
    const Dim *dim = &loop->attrs.dims.dim[0];
    const int axis = dim->split.axis[0];
    const uint64_t said = ranks_with_part(m, dim);
    return (Stages){ said ? said : ALL_STAGES >> (MAX_STAGE_RANKS - m->axis_size[axis]), axis };
}

Stages end_stage(const Module *m, const Op *loop, bool last)
{
    const Stages passed = stages_passed(m, loop);
    const int at = last == runs_to_last_stage(loop) ? 63 - __builtin_clzll(passed.at) : __builtin_ctzll(passed.at);
    return (Stages){ UINT64_C(1) << at, passed.axis };
}

bool crosses_stages(const Module *m, const Op *loop, int from, int to)
{
    const Stages passed = stages_passed(m, loop);
    return is_on(passed, from) && is_on(passed, to) && to - from == (runs_to_last_stage(loop) ? 1 : -1);
}

bool begins_chunk(const Module *m, const Op *before, const Op *loop)
{
    return runs_to_last_stage(before) != runs_to_last_stage(loop) ||
           !same_stages(end_stage(m, before, true), end_stage(m, loop, false));
}

void cut_repeats(const int64_t *copies, int repeats, const int64_t *stage, int64_t part[][MAX_STAGE_RANKS])
{
    int at = 0;
    int64_t room = stage[0];
    for (int repeat = 0; repeat < repeats; repeat++) {
        for (int i = 0; i < MAX_STAGE_RANKS; i++)
            part[repeat][i] = i == at ? 0 : -1;
        for (int64_t left = copies[repeat]; left > 0;) {
            while (!room)
                room = stage[++at];
            const int64_t taken = left < room ? left : room;
            part[repeat][at] = taken;
            left -= taken;
            room -= taken;
        }
    }
}

/* A sum of terms on different stages: each rank adds what it holds, and the sum of these is pending. */

Axes pending_with_stages(const Type *type)
{
    return type->partial | (is_one_stage(type->on) ? 1u << type->on.axis : 0);
}

bool adds_stages(const Op *op)
{
    if (!is_addition(op))
        return false;
    const Type *a = &arg(op, 0)->type, *b = &arg(op, 1)->type;
    const Axes axis = a->on.at ? 1u << a->on.axis : b->on.at ? 1u << b->on.axis : 0;
    return !same_stages(a->on, b->on) && pending_with_stages(a) & pending_with_stages(b) & axis;
}

Axes pending_of(const Op *op, const Type *type) { return adds_stages(op) ? pending_with_stages(type) : type->partial; }

/* All stages: none has to be named. */
Stages unless_all(const Module *m, Stages on)
{
    if (!on.at)
        return on;
    for (int stage = 0; stage < m->axis_size[on.axis]; stage++)
        if (!(on.at >> stage & 1))
            return on;
    return (Stages){ 0 };
}

/* --- Where values are needed ----------------------------------------------------------------------- */

uint64_t stages_needing(const Map *needed, const Value *value)
{
    const uint64_t *stages = map_get(needed, value);
    return stages ? *stages : 0;
}

bool need_on(Map *needed, const Value *value, uint64_t stages)
{
    uint64_t *held = map_get(needed, value);
    if (!held)
        map_put(needed, value, held = NEW(needed->arena, uint64_t));
    const uint64_t before = *held;
    *held |= stages;
    return *held != before;
}

static bool need(Map *needed, const Value *value, uint64_t stages)
{
    return need_on(needed, value, value->type.on.at ? stages & value->type.on.at : stages);
}

/* The stages that need the i-th operand of a call or loop. */
static uint64_t needed_by_callee(const Module *m, const Map *needed, const Op *op, int i)
{
    const Func *callee = find_func(m, op->attrs.callee);
    if (!runs_in_stages(op))
        return stages_needing(needed, callee->params.at[i]);
    const bool is_split = find_dim(&arg(op, i)->type, op->attrs.dims.dim[0].name) >= 0; /* all stages have a part */
    return i >= op->attrs.carried       ? is_split ? ALL_STAGES : stages_passed(m, op).at
           : arg(op, i)->type.in_flight ? ALL_STAGES
                                        : end_stage(m, op, false).at;
}

uint64_t stages_written(const Module *m, const Value *value)
{
    const Op *op = value->def;
    const Func *callee = op ? function_called_by(m, op) : NULL;
    if (callee && !runs_in_stages(op)) {
        const uint64_t calling = stages_calling(m, op).at;
        return stages_written(m, callee->results.at[index_of(&op->results, value)]) & (calling ? calling : ALL_STAGES);
    }
    return value->type.on.at && !callee ? value->type.on.at : ALL_STAGES;
}

/* What an op needs of its i-th operand, if the stages need its results. */
static uint64_t needed_by_op(const Module *m, const Map *needed, const Op *op, int i)
{
    uint64_t stages = 0;
    if (function_called_by(m, op))
        return needed_by_callee(m, needed, op, i);
    const unsigned traits = info(op)->traits;
    const bool stays = traits & WISHES && same_stages(arg(op, 0)->type.on, result(op)->type.on);
    const bool is_part = traits & MOVES && info(op)->family == VIEW; /* some stages keep their values */
    if (traits & (MOVES | SENDS | WAITS) && !stays && !is_part)      /* all ranks of a group call it */
        return ALL_STAGES;
    for (int j = 0; j < op->results.count; j++)
        stages |= stages_needing(needed, op->results.at[j]);
    return stages;
}

static bool need_in_callee(const Module *m, Map *needed, const Op *op)
{
    Func *callee = find_func(m, op->attrs.callee);
    bool changed = false;
    for (int i = 0; i < op->results.count; i++) {
        const bool passes_on = runs_in_stages(op) && i < op->attrs.carried;
        const uint64_t stages = passes_on ? ALL_STAGES : stages_needing(needed, op->results.at[i]);
        changed |= need(needed, callee->results.at[i], stages);
    }
    for (int i = 0; i < op->attrs.carried && !runs_in_stages(op); i++) /* the next iteration reads it */
        changed |= need(needed, callee->results.at[i], stages_needing(needed, callee->params.at[i]));
    return changed;
}

static bool need_in_func(const Module *m, Map *needed, const Func *f, bool with_state)
{
    bool changed = false;
    for (int i = 0; i < f->results.count && f->role != PLAIN; i++)
        if (with_state || state_replaced(f, i) < 0)
            changed |= need(needed, f->results.at[i], ALL_STAGES);
    for (const Op *op = f->last; op; op = op->prev) {
        const Func *callee = function_called_by(m, op);
        if (callee && need_in_callee(m, needed, op)) {
            need_in_func(m, needed, callee, with_state); /* before what it needs of its operands is asked */
            changed = true;
        }
        for (int i = 0; i < op->args.count; i++)
            changed |= need(needed, arg(op, i), needed_by_op(m, needed, op, i));
    }
    return changed;
}

Stages stages_calling(const Module *m, const Op *op)
{
    const Stages on = op->results.count ? result(op)->type.on : (Stages){ 0 };
    return on.at && !is_staged(m, find_func(m, op->attrs.callee)) ? on : (Stages){ 0 };
}

uint64_t stages_running(const Module *m, const Op *op)
{
    const unsigned traits = info(op)->traits;
    Stages on = { 0, m->stage_axis };
    if (!m->needed)
        return ALL_STAGES;
    if (runs_in_stages(op))
        return unless_all(m, stages_passed(m, op)).at ? stages_passed(m, op).at : ALL_STAGES;
    if (function_called_by(m, op))
        return stages_calling(m, op).at ? stages_calling(m, op).at : ALL_STAGES;
    for (int i = 0; i < op->results.count; i++) {
        const Value *value = op->results.at[i];
        const uint64_t whole = value->type.on.at ? value->type.on.at : ALL_STAGES;
        on.at |= traits & (SENDS | WAITS) ? whole : stages_needing(m->needed, value);
    }
    if (traits & MOVES && traits & SENDS)
        on.at |= arg(op, 0)->type.on.at;
    return on.at && !unless_all(m, on).at ? ALL_STAGES : on.at;
}

void note_stages(Module *m)
{
    if (m->needed || pipeline_axis(m) < 0)
        return;
    Map *needed = NEW(&m->arena, Map);
    *needed = stages_needed(m, true);
    m->needed = needed;
}

Map stages_needed(Module *m, bool with_state)
{
    Map needed = { .arena = &m->arena };
    for (bool changed = true; changed;) {
        changed = false;
        for (const Func *f = m->funcs; f; f = f->next)
            changed |= f->role != KERNEL && need_in_func(m, &needed, f, with_state);
    }
    return needed;
}

/* --- Micro-batches --------------------------------------------------------------------------------- */

bool passes_stages(const Func *f)
{
    for (const Op *op = f->first; op; op = op->next)
        if (runs_in_stages(op))
            return true;
    return false;
}

bool is_part_of_micro(const Module *m, const Func *f)
{
    const Op *loop = micro_loop(m);
    for (const Op *op = loop && loop->attrs.stages ? find_func(m, loop->attrs.callee)->first : NULL; op; op = op->next)
        if (op->attrs.callee == f->name)
            return true;
    return false;
}

Op *micro_loop(const Module *m)
{
    const Func *step = func_with_role(m, STEP);
    for (Op *op = step ? step->first : NULL; op; op = op->next) {
        const Func *callee = op->attrs.callee && op->attrs.dims.count ? find_func(m, op->attrs.callee) : NULL;
        if (callee && (op->attrs.stages || passes_stages(callee)))
            return op;
    }
    return NULL;
}
