/* slots.c -- values that the micro-batches of a pipeline keep in memory between their actions.
 *
 * The results of a micro-batch's parts, see passes/layout/pipeline.c, are in slots after the frame of the loop, as many
 * as micro-batches are at most between the action that makes a result, or the message in which it arrives, and the last
 * action that reads it.
 */
#include "slots.h"

#include "micro.h"
#include "split_loop.h"
#include "storage.h"

#include <string.h>

/* The user's table; its errors are those of its file. */
static PipelineSchedule *read_table(Module *m, int ranks, int chunks, int micros)
{
    Diags diags = { .arena = &m->arena, .source = m->table, .out = m->diags->out };
    PipelineSchedule *s = read_schedule(&m->arena, &diags, ranks, chunks, micros);
    m->diags->errors += diags.errors;
    return s;
}

/* Is it the one that was certified last? */
static bool is_certified(const PipelineSchedule *s, const PipelineSchedule *wanted)
{
    return s && strcmp(s->name, wanted->name) == 0 && s->ranks == wanted->ranks && s->chunks == wanted->chunks &&
           s->micros == wanted->micros && s->reduces == wanted->reduces;
}

int micros_of_loop(const Op *loop)
{
    const int64_t abreast = loop->attrs.abreast;
    return (int)(loop->attrs.dims.dim[0].size / (abreast ? abreast : 1));
}

PipelineSchedule *schedule_of_loop(Module *m, const Op *loop, ActionOrder name, int chunks)
{
    const Loc loc = loop ? loop->loc : (Loc){ 0 };
    if (name == STAGES_TABLE && !m->table) {
        error_at(m->diags, (Where){ .at = loc }, "the schedule is a table, and the module has none");
        return NULL;
    }
    const char *why = NULL, *help = NULL, *called = name == STAGES_TABLE ? m->table->path : ActionOrder_words[name];
    const PipelineSchedule wanted = { .name = ActionOrder_words[name],
                                      .ranks = count_kinds(m),
                                      .chunks = chunks,
                                      .micros = loop ? micros_of_loop(loop) : 1,
                                      .reduces = loop && next_early(loop->next) };
    if (is_certified(m->schedule, &wanted))
        return m->schedule;
    PipelineSchedule *s = name == STAGES_TABLE
                              ? read_table(m, wanted.ranks, chunks, wanted.micros)
                              : make_schedule(&m->arena, called, wanted.ranks, chunks, wanted.micros, &why, &help);
    if (s)
        s->reduces = wanted.reduces;
    if (s && order_messages(&m->arena, s, &why) && certify_schedule(&m->arena, s, &why))
        return m->schedule = s;
    if (why)
        error_at(m->diags, (Where){ .at = loc, .help = help }, "the schedule %s: %s", called, why);
    return NULL;
}

int chunk_of_result(const MicroParts *parts, int i)
{
    const StagePart *part = part_called(parts, parts->micro->results.at[i]->def);
    return part ? part->chunk : -1;
}

const Op *next_early(const Op *op)
{
    while (op && !op->attrs.early)
        op = op->next;
    return op;
}

/* The sum of micro-batches that an early message is of. */
static const Value *sum_of_early(const Op *op)
{
    const Value *read = arg(op, 0);
    while (read->def->attrs.early)
        read = arg(read->def, 0);
    return read;
}

int chunk_among(const MicroParts *parts, const Op *op)
{
    const Value *sum = sum_of_early(op);
    return chunk_of_result(parts, index_of(&sum->def->results, sum));
}

int chunk_of_early(Module *m, const Op *op)
{
    MicroParts parts;
    const bool is_found = op->attrs.early && find_parts(m, find_func(m, sum_of_early(op)->def->attrs.callee), &parts);
    return is_found ? chunk_among(&parts, op) : -1;
}

/* --- Slots ------------------------------------------------------------------------------------------ */

static bool is_carried(const Op *loop, const Values *list, const Value *value)
{
    const int i = index_of(list, value);
    return i >= 0 && i < loop->attrs.carried;
}

/* Does the i-th result of a part arrive on the rank, from another stage of its chunk, or from the chunk before? */
static bool arrives(const Module *m, const MicroSlots *all, const StagePart *part, int i, int rank)
{
    const Value *value = find_func(m, part->call->attrs.callee)->results.at[i];
    const int ranks = all->schedule->ranks, at = stage_on_rank(all->schedule, rank, part->chunk) % ranks;
    const bool is_first = at == (part->kind == FORWARD_ACTION ? 0 : ranks - 1);
    for (int k = 0; k < part->nloops; k++)
        if (is_carried(part->loop[k], &part->loop[k]->args, value) && is_on(ranks_passed(m, part->loop[k]), rank) &&
            !is_on(end_rank(m, part->loop[k], false), rank))
            return true;
    return is_first && value->def && is_send(value->def);
}

/* The lifetime of the i-th result of part number `number`. */
static Lifetime lifetime_of(const Module *m, const MicroSlots *all, int number, int i, int rank)
{
    const StagePart *made = &all->parts.part[number], *read = made;
    for (int later = number; later < all->parts.count; later++)
        if (index_of(&all->parts.part[later].call->args, made->call->results.at[i]) >= 0)
            read = &all->parts.part[later];
    return (Lifetime){ made->kind, read->kind, made->chunk, read->chunk, arrives(m, all, made, i, rank) };
}

/* How many slots a rank needs of it.  What nothing reads later leaves the stage: with two, the next micro-batch need
 * not wait for its message. */
static int slots_of_result(const PipelineSchedule *s, int rank, const Lifetime *life)
{
    const bool leaves = !life->arrives && life->made == life->read && life->made_chunk == life->read_chunk;
    return leaves && s->micros > 1 ? 2 : slots_needed(s, rank, life);
}

/* Do two results of a call lie at one pointer of its function, interleaved or next to each other? */
static bool lie_together(const Module *m, const Op *call, const Value *a, const Value *b)
{
    const Func *f = find_func(m, call->attrs.callee);
    const Storage *x = f->results.at[index_of(&call->results, a)]->storage;
    const Storage *y = f->results.at[index_of(&call->results, b)]->storage;
    return same_base(x, y) && x->base == BY_POINTER;
}

static bool lives_as(const Lifetime *a, const Lifetime *b)
{
    return a->made == b->made && a->read == b->read && a->made_chunk == b->made_chunk &&
           a->read_chunk == b->read_chunk && a->arrives == b->arrives;
}

/* The slots of each rank that were found last: many values live alike. */
typedef struct {
    Lifetime life[MAX_SET_RANKS];
    int slots[MAX_SET_RANKS]; /* 0: not known */
} SlotCache;

/* Adds a value of the frame to the ring of those with which it lies, or to a new one. */
static void add_to_ring(Module *m, MicroSlots *all, int number, int i, SlotCache *known)
{
    const Op *call = all->parts.part[number].call;
    const Value *value = call->results.at[i];
    const int64_t begin = value->storage->at, end = begin + span_bytes(m, value);
    Ring *ring = NULL;
    for (int k = 0; k < all->nrings && !ring; k++)
        if (all->ring[k].call == call && lie_together(m, call, all->ring[k].value, value))
            ring = &all->ring[k];
    if (!ring) {
        ring = &all->ring[all->nrings++];
        *ring = (Ring){ .call = call, .value = value, .begin = begin, .end = end };
        ring->slots = NEW_ARRAY(&m->arena, int, all->schedule->ranks);
    }
    ring->begin = begin < ring->begin ? begin : ring->begin;
    ring->end = end > ring->end ? end : ring->end;
    for (int rank = 0; rank < all->schedule->ranks; rank++) {
        const Lifetime life = lifetime_of(m, all, number, i, rank);
        if (!known->slots[rank] || !lives_as(&life, &known->life[rank]))
            known->slots[rank] = slots_of_result(all->schedule, rank, &life);
        known->life[rank] = life;
        const int needed = known->slots[rank];
        ring->in_flight |= life.made == FORWARD_ACTION && life.read > FORWARD_ACTION;
        ring->slots[rank] = needed > ring->slots[rank] ? needed : ring->slots[rank];
    }
}

/* Does the value have the slots that it needs, on each rank?  By the other program: see schedule.h. */
static bool certify_value(Module *m, const MicroSlots *all, int number, int i, SlotCache *proved)
{
    const char *why;
    const Value *value = all->parts.part[number].call->results.at[i];
    const int ring = value->storage->base == IN_FRAME ? ring_of(all, value) : -1;
    for (int rank = 0; rank < all->schedule->ranks && ring >= 0; rank++) {
        const Lifetime life = lifetime_of(m, all, number, i, rank);
        const int slots = all->ring[ring].slots[rank];
        if (proved->slots[rank] == slots && lives_as(&life, &proved->life[rank]))
            continue;
        if (!certify_slots(&m->arena, all->schedule, rank, &life, slots, &why)) {
            error_at(m->diags, (Where){ .at = all->loop->loc }, "the slots of %%%s: %s", value->name, why);
            return false;
        }
        proved->life[rank] = life, proved->slots[rank] = slots;
    }
    return true;
}

static bool certify_rings(Module *m, const MicroSlots *all)
{
    SlotCache proved = { 0 };
    bool good = true;
    for (int number = 0; number < all->parts.count; number++)
        for (int i = 0; i < all->parts.part[number].call->results.count && good; i++)
            good = certify_value(m, all, number, i, &proved);
    return good;
}

/* The i-th operand or result of a part, and as what its function has it. */
static const Value *seen_by_part(const Module *m, const StagePart *part, int i, const Value **inside)
{
    const Func *f = find_func(m, part->call->attrs.callee);
    const int results = i - part->call->args.count;
    *inside = results < 0 ? f->params.at[i] : f->results.at[results];
    return results < 0 ? arg(part->call, i) : part->call->results.at[results];
}

/* Does a function that gets one pointer for several values find them where it expects them, in the slots of one ring?
 */
static bool check_pointers(Module *m, const MicroSlots *all, const StagePart *part)
{
    const int count = part->call->args.count + part->call->results.count;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            const Value *x, *y, *a = seen_by_part(m, part, i, &x), *b = seen_by_part(m, part, j, &y);
            if (!same_base(x->storage, y->storage) || x->storage->base != BY_POINTER || a->storage->base != IN_FRAME)
                continue;
            if (b->storage->base == IN_FRAME && ring_of(all, a) == ring_of(all, b) &&
                a->storage->at - b->storage->at == x->storage->at - y->storage->at)
                continue;
            error_at(m->diags, (Where){ .at = all->loop->loc }, "@%s expects %%%s and %%%s together in a slot",
                     part->call->attrs.callee, a->name, b->name);
            return false;
        }
    return true;
}

static void place_rings(MicroSlots *all)
{
    for (int i = 0; i < all->nrings; i++) {
        Ring *ring = &all->ring[i];
        int most = 0;
        for (int rank = 0; rank < all->schedule->ranks; rank++)
            most = most > ring->slots[rank] ? most : ring->slots[rank];
        ring->bytes = aligned_bytes(ring->end - ring->begin);
        ring->offset = all->bytes;
        all->bytes += most * ring->bytes;
    }
}

const MicroSlots *slots_of_loop(Module *m, const Op *loop)
{
    return m->slots && m->slots->loop == loop ? m->slots : plan_slots(m, loop);
}

/* The first sum over micro-batches that one action reads and another one updates: a second micro-batch may be between
 * them.  NULL: there is none. */
static const Value *divided_sum(const MicroParts *parts)
{
    for (int i = 0; i < parts->sums; i++) {
        const Op *update = parts->micro->results.at[i]->def;
        for (const Op *op = parts->micro->first; op; op = op->next) {
            const bool reads = index_of(&op->args, parts->micro->params.at[i]) >= 0;
            if (reads && op != update && part_called(parts, op) && update && part_called(parts, update))
                return parts->micro->params.at[i];
        }
    }
    return NULL;
}

const MicroSlots *plan_slots(Module *m, const Op *loop)
{
    const Func *micro = find_func(m, loop->attrs.callee);
    MicroSlots *all = m->slots = NEW(&m->arena, MicroSlots);
    all->loop = loop;
    if (!find_parts(m, micro, &all->parts)) {
        error_at(m->diags, (Where){ .at = loop->loc }, "the parts of a micro-batch are not forward and backward");
        return all;
    }
    const Value *divided = divided_sum(&all->parts);
    if (divided)
        error_at(m->diags, (Where){ .at = loop->loc }, "internal: one action of @%s reads %%%s, another updates it",
                 micro->name, divided->name);
    all->schedule = schedule_of_loop(m, loop, loop->attrs.stages, all->parts.chunks);
    SlotCache known = { 0 };
    int most = 0;
    for (const Op *op = micro->first; op; op = op->next)
        most += op->results.count;
    all->ring = NEW_ARRAY(&m->arena, Ring, most + 1);
    for (int number = 0; number < all->parts.count && all->schedule; number++)
        for (int i = 0; i < all->parts.part[number].call->results.count; i++)
            if (all->parts.part[number].call->results.at[i]->storage->base == IN_FRAME)
                add_to_ring(m, all, number, i, &known);
    place_rings(all);
    for (int number = 0; number < all->parts.count && all->schedule; number++)
        if (!check_pointers(m, all, &all->parts.part[number]))
            all->schedule = NULL;
    if (all->schedule && !certify_rings(m, all))
        all->schedule = NULL;
    return all;
}

int ring_of(const MicroSlots *slots, const Value *value)
{
    for (int i = 0; i < slots->nrings; i++)
        if (slots->ring[i].call == value->def && slots->ring[i].begin <= value->storage->at &&
            value->storage->at < slots->ring[i].end)
            return i;
    return -1;
}

/* --- The schedule of a step ------------------------------------------------------------------------- */

/* Why it has none; NULL: it may have one. */
static const char *refusal(Module *m, const Op *loop, MicroParts *parts)
{
    const Func *step = func_with_role(m, STEP);
    if (!loop && step && has_split_loop(step))
        return "train.batch is train.microbatch, and one micro-batch is not scheduled";
    if (!loop)
        return "the repeat that runs in stages is inside another one";
    return find_parts(m, find_func(m, loop->attrs.callee), parts)
               ? NULL
               : "a micro-batch does not pass the stages once forward and once backward";
}

static PipelineSchedule *naive_schedule(Module *m, Arena *arena, const MicroParts *parts, int micros, const char **why)
{
    const char *help;
    PipelineSchedule *schedule = make_schedule(arena, "naive", count_kinds(m), parts->chunks, micros, why, &help);
    return schedule && order_messages(arena, schedule, why) ? schedule : NULL;
}

PipelineSchedule *schedule_of_step(Module *m, Arena *arena, const Op **loop, MicroParts *parts, const char **why)
{
    *loop = micro_loop(m);
    *why = refusal(m, *loop, parts);
    if (*why)
        return NULL;
    if ((*loop)->attrs.stages && !parts->part[0].call->results.at[0]->storage) /* its slots are not placed yet */
        return schedule_of_loop(m, *loop, (*loop)->attrs.stages, parts->chunks);
    if ((*loop)->attrs.stages)
        return slots_of_loop(m, *loop)->schedule;
    return naive_schedule(m, arena, parts, micros_of_loop(*loop), why);
}

PipelineSchedule *schedule_of_one(Module *m, Arena *arena, MicroParts *parts)
{
    const char *why;
    const bool is_one = !micro_loop(m) && find_parts(m, func_with_role(m, STEP), parts) && parts->count;
    return is_one ? naive_schedule(m, arena, parts, 1, &why) : NULL;
}
