/* block_parts.c -- reads from a program what the parts of a micro-batch take: see block.h. */
#include "block.h"

#include "structure.h"

#include "stages.h"
#include "storage.h"

#include <math.h>
#include <string.h>

typedef struct {
    const Planner *p;
    const StepCost *cost;
    const StageWeights *weights;
    Name copies[MAX_REPEATS]; /* the dims that count them */
    Block *block;
    Arena *arena;
} Parts;

static double seconds_of(const Parts *parts, const CostItem *from, int count)
{
    const CostList list = { .count = count, .item = (CostItem *)from };
    return list_seconds(parts->cost, &list, parts->p->machine, parts->arena);
}

/* Of the repeat, or of a chunk of it: "h.copy", "h.copy.chunk2". */
static bool counts_copies(const Parts *parts, int repeat, Name dim)
{
    const size_t length = strlen(parts->copies[repeat]);
    return dim == parts->copies[repeat] ||
           (strncmp(dim, parts->copies[repeat], length) == 0 && strncmp(dim + length, ".chunk", 6) == 0);
}

/* The repeat of the pipeline whose copies the item runs; -1: none. */
static int repeat_of(const Parts *parts, const CostItem *item)
{
    for (int i = 0; i < parts->weights->repeats; i++)
        if (item->kind == ITEM_REPEAT && counts_copies(parts, i, item->op->attrs.dims.dim[0].name))
            return i;
    return -1;
}

/* A copy as the later ones of a loop take. */
static double seconds_of_copy(const Parts *parts, const CostItem *item)
{
    CostItem few = *item, more = *item;
    few.turns = 3, more.turns = 4;
    return seconds_of(parts, &more, 1) - seconds_of(parts, &few, 1);
}

static void note_saved(const Parts *parts, const Op *loop, int repeat)
{
    const Module *m = parts->cost->m;
    double carried = 0;
    for (int i = 0; i < loop->results.count; i++) {
        const Type *type = &loop->results.at[i]->type;
        const double bytes = (double)local_bytes(m, type);
        if (i < loop->attrs.carried)
            carried += bytes;
        else
            parts->block->saved[repeat] += bytes / (double)loop->attrs.dims.dim[0].size;
    }
    parts->block->handed_on = fmax(parts->block->handed_on, carried);
}

static double saved_by_loops(const Module *m, const CostList *list)
{
    double bytes = 0;
    for (int i = 0; i < list->count; i++) {
        const Op *op = list->item[i].kind == ITEM_REPEAT ? list->item[i].op : NULL;
        for (int k = op ? op->attrs.carried : 0; op && !op->attrs.reverse && k < op->results.count; k++)
            bytes += (double)local_bytes(m, &op->results.at[k]->type);
    }
    return bytes;
}

/* Of results: operands may be saved, or in their place. */
static double bytes_at(const Module *m, const Op *op)
{
    double written = 0;
    for (int i = 0; i < op->results.count; i++)
        written += (double)local_bytes(m, &op->results.at[i]->type);
    return written;
}

/* While all is saved: what the op that has most needs beside it. */
static double most_at(const Module *m, const CostItem *items, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        if (items[i].kind < ITEM_MESSAGE)
            most = fmax(most, bytes_at(m, items[i].op));
    return most;
}

/* Forward in the order of the repeats, then backward in the opposite one; what stands between the two is backward, as
 * the pipeline has it. */
static void read_micro(const Parts *parts, const CostList *list)
{
    Block *b = parts->block;
    int from = 0, passed = 0;
    bool backward = parts->weights->repeats == 0;
    for (int i = 0; i <= list->count; i++) {
        const int repeat = i < list->count ? repeat_of(parts, &list->item[i]) : -1;
        if (i < list->count && repeat < 0)
            continue;
        const bool turns_back = repeat >= 0 && list->item[i].op->attrs.reverse;
        if (turns_back && !backward)
            b->at_head = most_at(parts->cost->m, &list->item[from], i - from);
        backward |= turns_back || i == list->count;
        double *beside = b->time.beside[backward ? BACKWARD_ACTION : FORWARD_ACTION];
        beside[turns_back         ? repeat + 1
               : i == list->count ? 0
                                  : passed] += seconds_of(parts, &list->item[from], i - from);
        if (repeat >= 0) {
            b->time.copy[turns_back ? BACKWARD_ACTION : FORWARD_ACTION][repeat] +=
                seconds_of_copy(parts, &list->item[i]);
            passed = turns_back ? passed : repeat + 1;
            if (!turns_back)
                note_saved(parts, list->item[i].op, repeat);
        }
        from = i + 1;
    }
}

/* The loop that trains on micro-batches, among the items of the step: one that counts labels is before it; -1: there is
 * none. */
static int micro_item(const CostList *step, double micros)
{
    int last = -1;
    for (int i = 0; i < step->count; i++)
        if (step->item[i].kind == ITEM_REPEAT && strcmp(step->item[i].op->attrs.dims.dim[0].name, "micro") == 0) {
            step->item[i].turns = micros;
            last = i;
        }
    return last;
}

/* What is in memory when the last micro-batch ends: what the loop has read, its sums, and the state.  Of one
 * micro-batch alone: the state. */
static double held_by_step(const Module *m, const Func *step, const Op *micro)
{
    double bytes = 0;
    for (int i = 0; !micro && i < step->params.count; i++)
        bytes += (double)local_bytes(m, &step->params.at[i]->type);
    if (!micro)
        return bytes;
    for (int i = 0; i < step->params.count; i++)
        bytes += index_of(&micro->args, step->params.at[i]) < 0 ? (double)local_bytes(m, &step->params.at[i]->type) : 0;
    for (int i = micro->attrs.carried; i < micro->args.count; i++)
        bytes += index_of(&micro->args, arg(micro, i)) == i ? (double)local_bytes(m, &arg(micro, i)->type) : 0;
    for (int i = 0; i < micro->results.count; i++)
        bytes += (double)local_bytes(m, &micro->results.at[i]->type);
    return bytes;
}

/* Kernels of the step outside of micro-batches. */
static double computed_beside(const Parts *parts, const CostList *step, int micro)
{
    double seconds = 0;
    for (int i = 0; i < step->count; i++)
        seconds += i != micro && step->item[i].kind < ITEM_MESSAGE ? seconds_of(parts, &step->item[i], 1) : 0;
    return seconds;
}

/* Of a step of one micro-batch: what it does in any number of them. */
static const CostList *without_zero(const CostList *step, Arena *arena)
{
    CostList *list = NEW(arena, CostList);
    for (int i = 0; i < step->count; i++) {
        const CostItem *item = &step->item[i];
        const bool is_zero = item->kind == ITEM_MESSAGE && item->op->attrs.purpose != ANY_PURPOSE;
        if (item->kind == ITEM_REPEAT || (item->phase != UPDATED && !is_zero))
            push_item(arena, list, *item);
    }
    return list;
}

/* --- With divided backward actions -------------------------------------------------------------------------- */

/* What is beside the copies is before them on the first stage, and after them on the last one. */
static void read_action(const Parts *parts, ActionKind kind, bool is_last)
{
    const int stage = is_last ? stage_count(parts->cost->schedule) - 1 : 0;
    const CostList *list = &parts->cost->action[kind][stage];
    Block *b = parts->block;
    int from = 0;
    for (int i = 0; i <= list->count; i++) {
        const int repeat = i < list->count ? repeat_of(parts, &list->item[i]) : -1;
        if (i < list->count && repeat < 0)
            continue;
        b->time.beside[kind][is_last] += seconds_of(parts, &list->item[from], i - from);
        if (repeat >= 0 && stage == 0)
            b->time.copy[kind][repeat] = seconds_of_copy(parts, &list->item[i]);
        from = i + 1;
    }
}

static int dim_of_copies(const Parts *parts, const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i].name == parts->copies[0])
            return i;
    return -1;
}

static ActionKind last_reader(const MicroParts *micro, const Value *value)
{
    ActionKind read = FORWARD_ACTION;
    for (int i = 0; i < micro->count; i++)
        if (index_of(&micro->part[i].call->args, value) >= 0)
            read = micro->part[i].kind;
    return read;
}

/* Has the result memory of its own between the actions? */
static bool is_slot(const Op *call, int result)
{
    const Storage *storage = call->results.at[result]->storage;
    bool is_first = storage->base == IN_FRAME;
    for (int i = 0; i < result; i++) {
        const Storage *other = call->results.at[i]->storage;
        is_first &= other->base != IN_FRAME || other->at != storage->at;
    }
    return is_first;
}

/* What a micro-batch keeps of each copy of the first stage, whose number of copies the types have as local size. */
static void read_slots(const Parts *parts, Module *m)
{
    MicroParts micro;
    const Op *loop = micro_loop(m);
    if (!loop || !find_parts(m, find_func(m, loop->attrs.callee), &micro))
        return;
    for (int made = 0; made < micro.count; made++)
        for (int i = 0; i < micro.part[made].call->results.count; i++) {
            const Value *value = micro.part[made].call->results.at[i];
            const int copies = dim_of_copies(parts, &value->type);
            const ActionKind read = last_reader(&micro, value);
            if (copies < 0 || !is_slot(micro.part[made].call, i) || micro.part[made].kind == read)
                continue;
            const KeptKind kind = micro.part[made].kind == BACKWARD_ACTION ? FROM_BACKWARD
                                  : read == BACKWARD_ACTION                ? FOR_BACKWARD
                                                                           : FOR_WEIGHTS;
            parts->block->kept[kind] +=
                (double)local_bytes(m, &value->type) / (double)local_size(m, &value->type.dim[copies]);
        }
}

static void read_divided(const Parts *parts, Module *m)
{
    read_slots(parts, m);
    for (ActionKind kind = 0; kind < N_ACTION_KINDS; kind++)
        for (int is_last = 0; is_last < 2; is_last++)
            read_action(parts, kind, is_last);
}

/* --- The program ---------------------------------------------------------------------------------------------- */

static Axes axes_attended(const Planner *p, const Module *m)
{
    Axes axes = 0;
    for (int i = 0; i < m->naxes; i++)
        axes |= p->axis[plan_axis(p, m->axis[i])].attends ? 1u << i : 0;
    return axes;
}

/* All items of the list, one by one, but messages along these axes alone. */
static double seconds_apart(const Parts *parts, const CostList *list, Axes axes)
{
    double seconds = 0;
    for (int i = 0; i < list->count; i++) {
        const CostItem *item = &list->item[i];
        const bool counts =
            item->kind < ITEM_MESSAGE || (item->kind == ITEM_MESSAGE && !item->id && item->axes & ~axes);
        seconds += item->kind == ITEM_REPEAT ? item->turns * seconds_apart(parts, item->body, axes)
                   : counts                  ? seconds_of(parts, item, 1)
                                             : 0;
    }
    return seconds;
}

static void read_undivided(const Parts *parts, Module *m, Arena *arena)
{
    Block *block = parts->block;
    const CostList *step = &parts->cost->before[0];
    const int at = micro_item(step, (double)block->micros);
    const CostList *micro = at < 0 ? without_zero(step, arena) : step->item[at].body;
    read_micro(parts, micro);
    block->time.whole = seconds_of(parts, micro->item, micro->count);
    if (at >= 0) {
        block->once = seconds_of(parts, step->item, at) + seconds_of(parts, step->item + at + 1, step->count - at - 1);
        block->computed = computed_beside(parts, step, at);
    }
    block->step = seconds_of(parts, step->item, step->count);
    block->apart = seconds_apart(parts, micro, axes_attended(parts->p, m));
    block->saved_whole = saved_by_loops(m, micro);
    block->rest = held_by_step(m, func_with_role(m, STEP), at < 0 ? NULL : step->item[at].op);
}

/* The dims that count copies are found by their names in the program with stages. */
void read_block(void *context, Module *m, const Classes *classes, const char *why)
{
    const BlockReading *reading = context;
    Block *block = reading->block;
    Arena arena = { 0 };
    if (!m) {
        block->refused = why;
        return;
    }
    const RankMesh mesh = mesh_around(reading->p, &block->like, m->naxes, m->axis);
    StepCost cost = step_cost(m, classes, &arena);
    cost.mesh = &mesh;
    Parts parts = { .p = reading->p,
                    .cost = &cost,
                    .weights = stage_weights(reading->p, block->like.recompute),
                    .block = block,
                    .arena = &arena };
    for (int i = 0; i < parts.weights->repeats; i++)
        parts.copies[i] = intern_text(m, parts.weights->dim[i]);
    if (!block->of.is_divided)
        read_undivided(&parts, m, &arena);
    else if (cost.schedule)
        read_divided(&parts, m);
    else
        block->refused = "it has no schedule";
    arena_free(&arena);
}
