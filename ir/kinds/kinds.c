/* kinds.c -- the memory of each kind of rank: which bytes of the memory plan a stage of a pipeline has. */
#include "kinds.h"

#include "micro.h"
#include "needed.h"
#include "schedule/slots.h"
#include "split_loop.h"
#include "storage.h"
#include "tier.h"
#include "uses.h"

#include <stdlib.h>

/* --- What stages hold ------------------------------------------------------------------------------ */

static uint64_t stages_of_type(const Type *type) { return type->on.at ? type->on.at : ALL_RANKS; }

/* The i-th result of a call or loop: stages that run it and write the result in its function, or copy the first of the
 * carried values there. */
static uint64_t stages_of_result(const Module *m, const Op *op, const Func *callee, int i)
{
    const bool is_carried = i < op->attrs.carried;
    if (is_carried && is_split_loop(op)) /* what arrives from the stage before */
        return ALL_RANKS;
    const uint64_t written = holders_of(m, callee->results.at[i]);
    return ranks_running(m, op) & (written | (is_carried ? stages_of_type(&arg(op, i)->type) : 0));
}

uint64_t holders_of(const Module *m, const Value *value)
{
    const Op *op = shown_by(value)->def;
    const Func *callee = op ? function_called_by(m, op) : NULL;
    if (!op)
        return stages_of_type(&shown_by(value)->type);
    return callee ? stages_of_result(m, op, callee, index_of(&op->results, shown_by(value))) : ranks_running(m, op);
}

/* The stages that read the values of a function: from the last op to the first, so that those that read a view are
 * known before what it shows; callees first. */
static void note_readers(Kinds *kinds, const Func *f)
{
    const Module *m = kinds->m;
    if (map_get(&kinds->read, f))
        return;
    map_put(&kinds->read, f, (void *)(uintptr_t)f);
    for (const Op *op = f->last; op; op = op->prev) {
        const Func *callee = function_called_by(m, op);
        if (callee)
            note_readers(kinds, callee);
        const uint64_t running = ranks_running(m, op);
        for (int i = 0; i < op->args.count; i++)
            need_on(&kinds->readers, arg(op, i),
                    callee                     ? running & ranks_needing(&kinds->readers, callee->params.at[i])
                    : info(op)->family == VIEW ? ranks_needing(&kinds->readers, result(op))
                    : info(op)->traits & MOVES ? running & stages_of_type(&arg(op, i)->type)
                                               : running);
    }
}

/* --- How much of it --------------------------------------------------------------------------------- */

/* The dim whose parts differ in size between stages; -1: none. */
static int uneven_dim(const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i].split.parts)
            return i;
    return -1;
}

static bool is_loop_along(const Op *op, Name dim) { return is_split_loop(op) && op->attrs.dims.dim[0].name == dim; }

/* Does a collective exchange each copy of a stack with the same copy of others? */
static bool keeps_slices(const Op *op, const Value *value, Name dim)
{
    return info(op)->family == COLLECTIVE && !(info(op)->traits & MOVES) && find_dim(&value->type, dim) == 0 &&
           op->attrs.dim != dim && op->attrs.to != dim;
}

static const Users *readers_of(Kinds *kinds, const Func *f, const Value *value)
{
    Uses *uses = map_get(&kinds->uses, f);
    if (!uses) {
        uses = NEW(kinds->uses.arena, Uses);
        *uses = find_uses(kinds->uses.arena, f);
        map_put(&kinds->uses, f, uses);
    }
    return users_of(uses, value);
}

static bool is_read_in_slices(Kinds *kinds, const Func *f, const Value *value, Name dim);

/* Likewise, by one op, as its i-th operand.  What a loop carries is copied from one place to another: of stacks, the
 * slices. */
static bool reads_in_slices(Kinds *kinds, const Func *f, const Op *op, int i, Name dim)
{
    const Value *value = arg(op, i);
    const Func *callee = function_called_by(kinds->m, op);
    if (keeps_slices(op, value, dim) || (info(op)->traits & WAITS && is_read_in_slices(kinds, f, result(op), dim)))
        return true;
    if (!callee || (i < op->attrs.carried && find_dim(&value->type, dim) > 0))
        return false;
    return is_loop_along(op, dim) ? i >= op->attrs.carried
                                  : is_read_in_slices(kinds, callee, callee->params.at[i], dim);
}

/* Is it read slice by slice only? */
static bool is_read_in_slices(Kinds *kinds, const Func *f, const Value *value, Name dim)
{
    const Users *users = readers_of(kinds, f, value);
    for (int k = 0; k < users->count; k++)
        for (int i = 0; i < users->op[k]->args.count; i++)
            if (arg(users->op[k], i) == value && !reads_in_slices(kinds, f, users->op[k], i, dim))
                return false;
    return true;
}

/* Is it written slice by slice only?  The trainer writes tensors that outlive a step so, too: a copy at a time. */
static bool is_made_in_slices(Kinds *kinds, const Value *value, Name dim)
{
    const Op *op = value->def;
    const Func *callee = op ? function_called_by(kinds->m, op) : NULL;
    const int i = callee ? index_of(&op->results, value) : -1;
    if (!op)
        return port_is_state(value->port.kind);
    if (info(op)->traits & WAITS)
        return is_made_in_slices(kinds, arg(op, 0), dim);
    if (keeps_slices(op, value, dim))
        return true;
    if (!callee || (i < op->attrs.carried && find_dim(&value->type, dim) > 0))
        return false;
    if (is_loop_along(op, dim))
        return i >= op->attrs.carried;
    return is_made_in_slices(kinds, callee->results.at[i], dim) &&
           is_read_in_slices(kinds, callee, callee->results.at[i], dim);
}

static bool is_used_in_slices(Kinds *kinds, const Func *f, const Value *value)
{
    const int at = uneven_dim(&value->type);
    return at >= 0 && is_made_in_slices(kinds, value, value->type.dim[at].name) &&
           is_read_in_slices(kinds, f, value, value->type.dim[at].name);
}

/* The bytes of a value of f from its first to the end of its last element, on each kind. */
static void find_spans(Kinds *kinds, const Func *f, const Value *value, int64_t bytes[])
{
    const Module *m = kinds->m;
    const int sliced = is_used_in_slices(kinds, f, value) ? uneven_dim(&value->type) : -1;
    const Dim *dim = sliced >= 0 ? &value->type.dim[sliced] : NULL;
    const int64_t whole = span_bytes(m, value), most = dim ? local_size(m, dim) : 0;
    const int64_t slice = dim ? value->storage->stride[sliced] * dtype_bytes(value->type.dtype) : 0;
    for (int kind = 0; kind < kinds->count; kind++) {
        const int64_t part = dim ? part_size(m, dim, kind) : 0;
        bytes[kind] = dim && !part ? 0 : whole - (most - part) * slice;
    }
}

/* --- The parts of a frame that are in use ---------------------------------------------------------- */

typedef struct {
    int64_t begin, end;
    uint64_t on; /* kinds that use it */
} Use;

typedef struct FrameUses {
    Kinds *kinds;
    const MicroSlots *slots; /* NULL: no schedule */
    int count, room;
    Use *use;
} FrameUses;

static void add_use(FrameUses *all, Use use)
{
    GROW(&all->kinds->m->arena, all->use, all->count, all->room);
    all->use[all->count++] = use;
}

static void use(FrameUses *all, int64_t at, int64_t bytes, uint64_t on)
{
    enum { CACHE_LINE = 64 };
    if (bytes > 0 && on)
        add_use(all, (Use){ at / CACHE_LINE * CACHE_LINE, aligned_bytes(at + bytes), on });
}

/* The same for bytes that differ between kinds: one use for all that need as many. */
static void use_on_each(FrameUses *all, int64_t at, const int64_t bytes[], uint64_t on)
{
    const int count = all->kinds->count;
    for (int kind = 0; kind < count; kind++) {
        uint64_t alike = 0;
        for (int other = kind; other < count && on >> kind & 1; other++)
            alike |= bytes[other] == bytes[kind] ? on & UINT64_C(1) << other : 0;
        use(all, at, bytes[kind], alike);
        on &= ~alike;
    }
}

static void use_value(FrameUses *all, const Func *f, const Value *value)
{
    const Module *m = all->kinds->m;
    int64_t bytes[MAX_SET_RANKS];
    if (value->storage->base != IN_FRAME)
        return;
    find_spans(all->kinds, f, value, bytes);
    use_on_each(all, value->storage->at, bytes, holders_of(m, value) | ranks_needing(&all->kinds->readers, value));
}

void slot_bytes(Kinds *kinds, const MicroSlots *slots, int ring, int64_t bytes[])
{
    const Func *micro = find_func(kinds->m, slots->loop->attrs.callee);
    const Values *all = &slots->ring[ring].call->results;
    int64_t span[MAX_SET_RANKS];
    for (int kind = 0; kind < kinds->count; kind++)
        bytes[kind] = 0;
    for (int i = 0; i < all->count; i++) {
        const Value *value = all->at[i];
        if (value->storage->base != IN_FRAME || ring_of(slots, value) != ring)
            continue;
        const int64_t begin = value->storage->at - slots->ring[ring].begin;
        find_spans(kinds, micro, value, span);
        for (int kind = 0; kind < kinds->count; kind++)
            bytes[kind] = begin + span[kind] > bytes[kind] ? begin + span[kind] : bytes[kind];
    }
}

static uint64_t kinds_with_slot(const Kinds *kinds, const Ring *ring, int slot)
{
    uint64_t on = 0;
    for (int kind = 0; kind < kinds->count; kind++)
        on |= slot < ring->slots[kind] ? UINT64_C(1) << kind : 0;
    return on;
}

static void use_buffer(FrameUses *all, const Func *f, const Value *value, int64_t at)
{
    const Module *m = all->kinds->m;
    const bool in_slices = is_used_in_slices(all->kinds, f, value);
    int64_t bytes[MAX_SET_RANKS];
    for (int kind = 0; kind < all->kinds->count; kind++)
        bytes[kind] = in_slices ? part_bytes(m, &value->type, kind) : local_bytes(m, &value->type);
    use_on_each(all, at, bytes, holders_of(m, value));
}

/* Behind the frame of its callee: buffers of carried values, and slots. */
static void use_behind(FrameUses *all, const Func *f, const Op *op, const Func *callee)
{
    const Module *m = all->kinds->m;
    int64_t at = op->attrs.frame + aligned_bytes(callee->frame);
    const int64_t slots = at + iteration_buffers(m, op, callee) - op->attrs.slots;
    for (int i = 0; i < op->attrs.carried; i++) {
        const int64_t bytes = aligned_bytes(local_bytes(m, &callee->params.at[i]->type));
        if (is_carried_in_place(op, callee, i))
            continue;
        use_buffer(all, f, op->results.at[i], at);
        at += bytes;
    }
    for (int i = 0; op->attrs.slots && i < all->slots->nrings; i++) {
        const Ring *ring = &all->slots->ring[i];
        int64_t bytes[MAX_SET_RANKS];
        int most = 0;
        slot_bytes(all->kinds, all->slots, i, bytes);
        for (int kind = 0; kind < all->kinds->count; kind++)
            most = ring->slots[kind] > most ? ring->slots[kind] : most;
        for (int slot = 0; slot < most; slot++)
            use_on_each(all, slots + ring->offset + slot * ring->bytes, bytes, kinds_with_slot(all->kinds, ring, slot));
    }
}

int64_t scratch_of(Kinds *kinds, const Op *op) { return scratch_bytes(kinds->m, &kinds->scratch, op); }

static void use_beside(FrameUses *all, const Func *f, const Op *op)
{
    Module *m = all->kinds->m;
    const Func *callee = function_called_by(m, op);
    if (!callee) {
        use(all, op->attrs.frame, scratch_of(all->kinds, op), ranks_running(m, op));
        return;
    }
    const KindFrame *frame = kind_frame(all->kinds, callee);
    int64_t bytes[MAX_SET_RANKS];
    for (int kind = 0; kind < all->kinds->count; kind++)
        bytes[kind] = place_on(frame, kind, frame->bytes);
    use_on_each(all, op->attrs.frame, bytes, ranks_running(m, op));
    use_behind(all, f, op, callee);
}

static void use_frame(FrameUses *all, const Func *f)
{
    note_readers(all->kinds, f);
    for (const Op *op = f->first; op; op = op->next) {
        use_beside(all, f, op);
        for (int i = 0; i < op->results.count; i++)
            if (!all->slots || ring_of(all->slots, op->results.at[i]) < 0) /* these are in their slots */
                use_value(all, f, op->results.at[i]);
    }
}

static void use_params(FrameUses *all, const Func *f)
{
    note_readers(all->kinds, f);
    for (int i = 0; i < f->params.count; i++)
        use_value(all, f, f->params.at[i]);
    const StepState state = state_of(f);
    for (int i = 0; i < state.count; i++)
        use_value(all, f, state.after[i]);
}

/* Parameters of all entries are in the frame of each, and so is new state, which takes the place of the old one. */
static void use_outer(FrameUses *all)
{
    Kinds *kinds = all->kinds;
    if (!kinds->outer) {
        kinds->outer = NEW(&kinds->m->arena, FrameUses);
        *kinds->outer = (FrameUses){ .kinds = kinds, .slots = all->slots };
        for (const Func *f = kinds->m->funcs; f; f = f->next)
            if (is_program(f))
                use_params(kinds->outer, f);
    }
    for (int i = 0; i < kinds->outer->count; i++)
        add_use(all, kinds->outer->use[i]);
}

/* --- Gaps ------------------------------------------------------------------------------------------ */

static int lower_first(const void *a, const void *b)
{
    const Use *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void find_gaps(const FrameUses *all, KindFrame *frame, int kind, int64_t end)
{
    int64_t at = 0, before = 0;
    Gap *gap = frame->gap[kind] = NEW_ARRAY(&all->kinds->m->arena, Gap, all->count + 1);
    for (int i = 0; i <= all->count; i++) {
        const int64_t begin = i < all->count ? all->use[i].begin : end;
        if (i < all->count && !(all->use[i].on >> kind & 1))
            continue;
        if (begin > at) {
            gap[frame->count[kind]++] = (Gap){ at, begin - at, before };
            before += begin - at;
        }
        at = i < all->count && all->use[i].end > at ? all->use[i].end : at;
    }
}

static bool same_gaps(const KindFrame *frame, int a, int b)
{
    bool same = frame->count[a] == frame->count[b];
    for (int i = 0; same && i < frame->count[a]; i++)
        same = frame->gap[a][i].at == frame->gap[b][i].at && frame->gap[a][i].bytes == frame->gap[b][i].bytes;
    return same;
}

static KindFrame *new_frame(const Kinds *kinds, const Func *f)
{
    KindFrame *frame = NEW(&kinds->m->arena, KindFrame);
    frame->bytes = f->frame;
    frame->gap = NEW_ARRAY(&kinds->m->arena, Gap *, kinds->count);
    frame->count = NEW_ARRAY(&kinds->m->arena, int, kinds->count);
    frame->alike = NEW_ARRAY(&kinds->m->arena, int, kinds->count);
    return frame;
}

const KindFrame *kind_frame(Kinds *kinds, const Func *f)
{
    Module *m = kinds->m;
    KindFrame *frame = map_get(&kinds->frames, f);
    if (frame)
        return frame;
    frame = new_frame(kinds, f);
    map_put(&kinds->frames, f, frame);
    if (kinds->axis < 0)
        return frame;
    const Op *loop = scheduled_loop(m);
    FrameUses all = { .kinds = kinds, .slots = loop ? slots_of_loop(m, loop) : NULL };
    if (is_program(f))
        use_outer(&all);
    use_frame(&all, f);
    for (int i = 0; i < N_PROGRAMS && returns_state(f); i++) { /* what a step leaves is where others read it */
        const Func *other = func_with_role(m, programs[i]);
        if (other && other != f && returns_state(other))
            use_frame(&all, other);
    }
    if (all.count)
        qsort(all.use, (size_t)all.count, sizeof *all.use, lower_first);
    for (int kind = 0; kind < kinds->count; kind++) {
        find_gaps(&all, frame, kind, f->frame);
        while (!same_gaps(frame, frame->alike[kind], kind))
            frame->alike[kind]++;
    }
    return frame;
}

Kinds *plan_kinds_again(Module *m)
{
    const int axis = m->kind_axis;
    Kinds *kinds = m->kinds = NEW(&m->arena, Kinds);
    note_ranks(m);
    *kinds = (Kinds){ .m = m, .axis = axis, .count = axis < 0 ? 1 : (int)m->axis_size[axis] };
    kinds->frames.arena = kinds->frame_of.arena = kinds->scratch.arena = kinds->read.arena = kinds->readers.arena =
        kinds->uses.arena = &m->arena;
    return kinds;
}

Kinds *rank_kinds(Module *m) { return m->kinds ? m->kinds : plan_kinds_again(m); }

/* How many gaps begin before an address: they are in order. */
static int gaps_before(const KindFrame *frame, int kind, int64_t at)
{
    int low = 0, high = frame->count[kind];
    while (low < high) {
        const int middle = (low + high) / 2;
        if (frame->gap[kind][middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t place_on(const KindFrame *frame, int kind, int64_t at)
{
    if (at >= far_begin(frame->bytes))
        return at;
    const int before = gaps_before(frame, kind, at);
    const Gap *gap = before ? &frame->gap[kind][before - 1] : NULL;
    return !gap ? at : at - gap->before - (at - gap->at < gap->bytes ? at - gap->at : gap->bytes);
}

bool meets_gap(const KindFrame *frame, int kind, int64_t at, int64_t bytes)
{
    const int before = at >= far_begin(frame->bytes) ? 0 : gaps_before(frame, kind, at + bytes);
    return bytes && before && frame->gap[kind][before - 1].at + frame->gap[kind][before - 1].bytes > at;
}

/* The frame of the function that has the op. */
static const KindFrame *frame_of(Kinds *kinds, const Op *op)
{
    for (const Func *f = kinds->frame_of.count ? NULL : kinds->m->funcs; f; f = f->next)
        for (const Op *other = f->role == KERNEL ? NULL : f->first; other; other = other->next)
            map_put(&kinds->frame_of, other, (void *)kind_frame(kinds, f));
    return map_get(&kinds->frame_of, op);
}

bool keeps_distance(Module *m, const Op *op, const Value *a, const Value *b)
{
    const int64_t from = a->storage->at, to = b->storage->at;
    if (!same_base(a->storage, b->storage))
        return false;
    if (m->kind_axis < 0 || a->storage->base != IN_FRAME)
        return true;
    Kinds *kinds = rank_kinds(m);
    const KindFrame *frame = frame_of(kinds, op);
    const uint64_t on = ranks_running(m, op);
    bool keeps = true;
    for (int kind = 0; kind < kinds->count; kind++)
        keeps &= !(on >> kind & 1) || place_on(frame, kind, to) - place_on(frame, kind, from) == to - from;
    return keeps;
}

int64_t frame_on(Kinds *kinds, const Func *f, int kind) { return place_on(kind_frame(kinds, f), kind, f->frame); }

int64_t arena_on(Kinds *kinds, int kind)
{
    int64_t most = 0;
    for (const Func *f = kinds->m->funcs; f; f = f->next)
        if (is_program(f) && frame_on(kinds, f, kind) > most)
            most = frame_on(kinds, f, kind);
    return most;
}

int64_t largest_arena(Module *m)
{
    Kinds *kinds = plan_kinds_again(m);
    int64_t most = 0;
    for (int kind = 0; kind < kinds->count; kind++)
        most = arena_on(kinds, kind) > most ? arena_on(kinds, kind) : most;
    return most;
}
