/* programs.c -- places all programs of a module in one arena: first the tensors that outlive a step, then scalars and
 * inputs, then the frame that they share.  What a step leaves to the next one is in its frame. */
#include "frame.h"
#include "storage.h"
#include "target.h"
#include "tier.h"

#include <limits.h>

/* --- State --------------------------------------------------------------------------------------- */

/* What new state is a view of, as tables that are updated in blocks of rows. */
static void place_under(Module *m, Value *made, const Storage *view)
{
    made->storage = new_storage(m, &made->type, view->at);
    made->storage->base = view->base;
}

/* New state is written over the old one. */
static void place_new_state(Module *m, Func *f)
{
    const StepState state = state_of(f);
    for (int i = 0; i < state.count; i++) {
        Value *new = state.after[i], *old = state.before[i];
        Value *made = (Value *)shown_by(new);
        if (new->def && (old->port.kind != PORT_LEFT || f->role == BEGIN))
            new->storage = old->storage;
        if (made != new &&new->storage)
            place_under(m, made, old->storage);
        place_started(new);
    }
}

void note_left(Map *left, const Func *f)
{
    const StepState state = state_of(f);
    for (int i = 0; i < state.count; i++)
        if (state.before[i]->port.kind == PORT_LEFT)
            map_put(left, state.after[i], state.before[i]);
}

/* Other programs leave it where the step has put it. */
static void hold_in_place(Frame *frame, const Value *value, int last)
{
    Buffer *buffer = new_buffer(frame, span_bytes(frame->m, value), 0, last);
    buffer->at = value->storage->at - frame->base;
    buffer->is_placed = true;
}

/* What a step leaves is in its frame from where it is made to the update in the next step, unless that is no earlier.
 */
static void hold_around(Frame *frame, const Value *made, int until)
{
    Buffer *buffer = buffer_of(frame, made);
    if (until >= buffer->first)
        buffer->first = 0;
    else if (until > buffer->until)
        buffer->until = until;
}

/* The programs FINISH and BEGIN read it, or put it there; the trainer reads the loss and other results of the step when
 * they have run, too. */
void hold_left(Frame *frame)
{
    const StepState state = state_of(frame->f);
    const bool is_beside = returns_state(frame->f) && frame->f->role != STEP;
    const Func *step = is_beside ? func_with_role(frame->m, STEP) : NULL;
    for (int i = 0; step && i < step->results.count - state_of(step).count; i++)
        hold_in_place(frame, step->results.at[i], INT_MAX);
    for (int i = 0; i < state.count; i++) {
        const Value *left = state.before[i];
        if (left->port.kind != PORT_LEFT)
            continue;
        const int until = later(&frame->last, left, 0);
        if (frame->f->role == STEP)
            hold_around(frame, state.after[i], until);
        else
            hold_in_place(frame, left, frame->f->role == BEGIN ? INT_MAX : until);
    }
}

void place_left(Frame *frame)
{
    const StepState state = frame->f->role == STEP ? state_of(frame->f) : (StepState){ 0 };
    for (int i = 0; i < state.count; i++)
        if (state.before[i]->port.kind == PORT_LEFT)
            state.before[i]->storage->at =
                frame->base + buffer_of(frame, state.after[i])->at + offset_in_buffer(frame, state.after[i]);
}

/* The parameter that a value is, or is the new state of; NULL: neither. */
static Value *as_param(const Func *f, Value *value)
{
    const StepState state = state_of(f);
    for (int i = 0; i < state.count && value->def; i++)
        if (state.after[i] == value && state.before[i]->port.kind != PORT_LEFT)
            return state.before[i];
    return value->def ? NULL : value;
}

/* The pack of the i-th parameter of the step, or of its new state, which will be where it is. */
static const Pack *pack_of_param(const Frame *frame, int i)
{
    const StepState state = state_of(frame->f);
    const Pack *pack = pack_of(frame, frame->f->params.at[i]);
    const int at = i - (frame->f->params.count - state.count);
    return pack || at < 0 ? pack : pack_of(frame, state.after[at]);
}

/* Places a pack of parameters of the step, or of their new state; false if one of them is not state. */
static bool place_pack(Module *m, const Func *step, const Pack *pack, int64_t *at)
{
    for (int i = 0; i < pack->count; i++) {
        const Value *param = as_param(step, pack->member[i]);
        if (!param || !port_is_state(param->port.kind))
            return false;
    }
    for (int i = 0; i < pack->count; i++)
        as_param(step, pack->member[i])->storage = place_member(m, pack, pack->member[i], *at);
    *at = aligned_bytes(*at + pack_bytes(m, pack));
    return true;
}

/* `far`: the end of the other tiers. */
static int64_t place_params(Module *m, Func *f, const Func *step, const Pack *packs, bool state, int64_t at,
                            int64_t *far)
{
    Frame frame = { .m = m, .f = f, .packs = (Pack *)packs };
    const ParamIndex of_step = step ? index_params(&m->arena, step) : (ParamIndex){ 0 };
    note_packs(&frame);
    for (int i = 0; i < f->params.count; i++) {
        Value *value = f->params.at[i];
        const Pack *pack = f == step && state ? pack_of_param(&frame, i) : NULL;
        if (value->storage || (pack && place_pack(m, f, pack, &at)))
            continue;
        const bool is_state = port_is_state(value->port.kind);
        const Value *shared = f != step && step && is_state ? indexed_param(&of_step, value->port) : NULL;
        if (shared)
            value->storage = shared->storage;
        else if (value->port.kind == PORT_LEFT) /* in the frame of the step, see place_left(): until then apart */
            value->storage = new_storage(m, &value->type, -1 - i);
        else if (value->type.tier)
            *far = place_far(m, value, *far);
        else if (f == step ? port_is_state(value->port.kind) == state : !state)
            at = place_value(m, value, at);
    }
    return at;
}

void plan_memory(Module *m, const Map *apart, Map *scratch)
{
    Func *step = func_with_role(m, STEP);
    Pack *packs[N_PROGRAMS] = { 0 };
    int64_t base = 0, end = 0, far = 0;
    for (int i = 0; i < N_PROGRAMS; i++)
        packs[i] = func_with_role(m, programs[i]) ? find_packs(m, func_with_role(m, programs[i]), apart) : NULL;
    for (int state = 1; state >= 0; state--)
        for (int i = 0; i < N_PROGRAMS; i++) {
            Func *f = func_with_role(m, programs[i]);
            if (f)
                base = place_params(m, f, step, packs[i], state, base, &far);
        }
    for (Func *f = m->funcs; f; f = f->next)
        place_new_state(m, f);
    base = far_tier(m) == ON_DISK ? far_aligned(base) : base; /* so is what is largest, which files are read into */
    const int64_t far_state = far;
    for (int i = 0; i < N_PROGRAMS; i++) {
        Func *f = func_with_role(m, programs[i]);
        if (!f)
            continue;
        int64_t far_end = far_state;
        Frame frame = { .m = m,
                        .f = f,
                        .base = base,
                        .buffer.arena = &m->arena,
                        .lifetimes.arena = &m->arena,
                        .apart = apart,
                        .scratch = scratch,
                        .far = &far_end,
                        .packs = placeable(m, packs[i]) };
        plan_frame(&frame);
        far = far_end > far ? far_end : far;
        end = f->frame > end ? f->frame : end;
    }
    for (int i = 0; i < N_PROGRAMS; i++) {
        Func *f = func_with_role(m, programs[i]);
        if (f)
            f->frame = base + end;
    }
    if (far)
        move_far_behind(m, far_begin(base + end));
}
