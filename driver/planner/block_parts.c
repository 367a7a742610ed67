/* block_parts.c -- the times of the parts of a micro-batch, from the items of a program: see block.h. */
#include "block_parts.h"

#include <math.h>

double seconds_of(const Parts *parts, const CostItem *from, int count)
{
    const CostList list = { .count = count, .item = (CostItem *)from };
    return count ? list_seconds(&parts->sizing->cost, &list, parts->p->machine, parts->sizing->arena) : 0;
}

double seconds_of_copy(const Parts *parts, const CostItem *item)
{
    CostItem few = *item, more = *item;
    few.turns = 3, more.turns = 4;
    return seconds_of(parts, &more, 1) - seconds_of(parts, &few, 1);
}

/* Products and attentions of the backward pass that are not of weights. */
static double seconds_back(const Parts *parts, const CostList *list, const SizedItem *sized)
{
    double seconds = 0;
    for (int i = 0; i < list->count; i++) {
        const CostItem *item = &list->item[i];
        if (item->kind == ITEM_REPEAT)
            seconds += item->turns * seconds_back(parts, item->body, parts->s->item + sized[i].body.first);
        else if (item->kind <= ITEM_ATTENTION && sized[i].grows && item->phase == BACKWARD)
            seconds += seconds_of(parts, item, 1);
    }
    return seconds;
}

static void note_saved(const Parts *parts, const SizedItem *loop)
{
    Block *b = parts->block;
    b->saved[loop->repeat] += sum_of(parts->sizing, loop->sum[SUM_SAVED]) / (double)loop->copies;
    b->handed_on = fmax(b->handed_on, sum_of(parts->sizing, loop->sum[SUM_CARRIED]));
}

static double bytes_of_weights(const Parts *parts, Range terms)
{
    double bytes = 0;
    for (int i = 0; i < terms.count; i++)
        if (!parts->s->term[terms.first + i].scale.grows)
            bytes += sum_of(parts->sizing, (Range){ terms.first + i, 1 });
    return bytes;
}

static void note_scratch(const Parts *parts, const SizedItem *loop)
{
    Block *b = parts->block;
    Scratch scratch = { .own = sum_of(parts->sizing, loop->sum[SUM_SCRATCH]) };
    scratch.with_flights = scratch.own + sum_of(parts->sizing, loop->sum[SUM_FLIGHTS]);
    scratch.of_weights = bytes_of_weights(parts, loop->sum[SUM_SCRATCH]);
    if (b->first.own <= 0)
        b->first = b->least = scratch;
    b->least = (Scratch){ fmin(b->least.own, scratch.own), fmin(b->least.with_flights, scratch.with_flights),
                          fmin(b->least.of_weights, scratch.of_weights) };
}

static double saved_by_loops(const Parts *parts, Range items)
{
    double bytes = 0;
    for (int i = 0; i < items.count; i++) {
        const SizedItem *item = &parts->s->item[items.first + i];
        bytes += item->reverse ? 0 : sum_of(parts->sizing, item->sum[SUM_SAVED]);
    }
    return bytes;
}

/* While all is saved: the results of the op that has most.  Operands may be saved, or in their place. */
static double most_at(const Parts *parts, const SizedItem *item, int count, bool of_weights)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        if (item[i].grows || of_weights)
            most = fmax(most, sum_of(parts->sizing, item[i].sum[SUM_WRITTEN]));
    return most;
}

/* Forward in the order of the repeats, then backward in the opposite one; what stands between the two is backward, as
 * the pipeline has it. */
static void read_micro(const Parts *parts, const CostList *list, const SizedItem *sized)
{
    Block *b = parts->block;
    int from = 0, passed = 0;
    bool backward = parts->weights->repeats == 0;
    for (int i = 0; i <= list->count; i++) {
        const int repeat = i < list->count ? sized[i].repeat : -1;
        if (i < list->count && repeat < 0)
            continue;
        const bool turns_back = repeat >= 0 && sized[i].reverse;
        if (turns_back && !backward) {
            b->at_head = most_at(parts, sized + from, i - from, true);
            b->at_heads = most_at(parts, sized + from, i - from, false);
        }
        backward |= turns_back || i == list->count;
        double *beside = b->time.beside[backward ? BACKWARD_ACTION : FORWARD_ACTION];
        beside[turns_back         ? repeat + 1
               : i == list->count ? 0
                                  : passed] += seconds_of(parts, &list->item[from], i - from);
        if (repeat >= 0) {
            b->time.copy[turns_back ? BACKWARD_ACTION : FORWARD_ACTION][repeat] +=
                seconds_of_copy(parts, &list->item[i]);
            passed = turns_back ? passed : repeat + 1;
            if (turns_back) {
                note_scratch(parts, &sized[i]);
                b->time.back[repeat] += seconds_back(parts, list->item[i].body, parts->s->item + sized[i].body.first);
            } else {
                note_saved(parts, &sized[i]);
            }
        }
        from = i + 1;
    }
}

/* The loop that trains on micro-batches, among the items of the step: one that counts labels is before it; -1: there is
 * none. */
static int micro_item(const CostList *step, const SizedItem *sized, double turns)
{
    int last = -1;
    for (int i = 0; i < step->count; i++)
        if (sized[i].is_micro) {
            step->item[i].turns = turns;
            last = i;
        }
    return last;
}

/* Kernels of the step outside of micro-batches. */
static double computed_beside(const Parts *parts, const CostList *step, int micro)
{
    double seconds = 0;
    for (int i = 0; i < step->count; i++)
        seconds += i != micro && step->item[i].kind < ITEM_MESSAGE ? seconds_of(parts, &step->item[i], 1) : 0;
    return seconds;
}

/* Does zero divide all that is large?  Then it does so with any sizes that the program serves. */
static bool divides_all(const Parts *parts, const CostList *step)
{
    double all = 0, whole = 0;
    for (int i = 0; i < step->count; i++)
        if (step->item[i].kind == ITEM_MESSAGE) {
            all += step->item[i].volume;
            whole += step->item[i].collective == OP_all_reduce ? step->item[i].volume : 0;
        }
    return parts->block->like.zero <= 0 || whole <= 0.01 * all;
}

/* Messages of copies outside of micro-batches, before them or after. */
static void note_sent(const Parts *parts, const CostList *step, const SizedItem *sized, int micro)
{
    OnceTime *sent = &parts->block->sent;
    sent->share = divides_all(parts, step) ? 1 : JOINED_SHARE;
    for (int i = 0; i < step->count; i++) {
        const CostItem *item = &step->item[i];
        if (item->kind != ITEM_MESSAGE)
            continue;
        const Group group = group_in_mesh(parts->p->machine, &parts->sizing->mesh, item->axes);
        const int place = group.on_one_machine < group.ranks ? OUTSIDE : INSIDE;
        const double seconds = sent_seconds(parts->p->machine, item, group);
        double *of = i < micro ? sent->before[place] : !sized[i].is_late ? sent->early[place] : sent->late[place];
        for (int repeat = 0; repeat < parts->weights->repeats; repeat++)
            of[repeat] += sized[i].of_copies[repeat] * seconds;
    }
}

static bool grows_with_sequences(const Parts *parts, Range terms)
{
    for (int i = 0; i < terms.count; i++)
        if (parts->s->term[terms.first + i].scale.grows)
            return true;
    return false;
}

static void add_link(const Parts *parts, const CostItem *item, double times, PlaceTime *time)
{
    Group group = group_in_mesh(parts->p->machine, &parts->sizing->mesh, item->axes);
    group.ranks = item->ranks;
    group.on_one_machine = group.on_one_machine < item->ranks ? group.on_one_machine : item->ranks;
    time->seconds[group.on_one_machine < group.ranks ? OUTSIDE : INSIDE] +=
        times * sent_seconds(parts->p->machine, item, group);
}

/* once: the items are outside of micro-batches; bytes: of messages of zero, at [1] of those that it does not divide. */
static void add_links(const Parts *parts, const CostList *list, const SizedItem *sized, double times, bool once,
                      double bytes[2])
{
    LinkTime *links = &parts->block->links;
    for (int i = 0; i < list->count; i++) {
        const CostItem *item = &list->item[i];
        const bool is_micro = sized[i].is_micro, grows = grows_with_sequences(parts, sized[i].sum[SUM_VOLUME]);
        if (item->kind == ITEM_REPEAT)
            add_links(parts, item->body, parts->s->item + sized[i].body.first,
                      times * (is_micro ? 1.0 / lanes_of(&parts->block->like) : item->turns), once && !is_micro, bytes);
        if (item->kind != ITEM_MESSAGE || !(grows || sized[i].is_zero))
            continue;
        bytes[0] += grows ? 0 : times * item->volume;
        bytes[1] += !grows && item->collective == OP_all_reduce ? times * item->volume : 0;
        add_link(parts, item, times, grows ? &links->grown : once ? &links->once : &links->fixed);
        if (sized[i].is_of_keys && grows)
            add_link(parts, item, times, &links->keys);
    }
}

/* Does zero divide all that is large?  See divides_all(). */
static void note_links(const Parts *parts, const CostList *step, const SizedItem *sized, bool has_micro)
{
    double bytes[2] = { 0 };
    add_links(parts, step, sized, 1, has_micro, bytes);
    parts->block->links.share = parts->block->like.zero <= 0 || bytes[1] <= 0.01 * bytes[0] ? 1 : JOINED_SHARE;
}

/* Of a step of one micro-batch: what it does in any number of them.  Other items take nothing, as waits for what is
 * not sent. */
static void leave_out_zero(const CostList *step, const SizedItem *sized)
{
    for (int i = 0; i < step->count; i++) {
        CostItem *item = &step->item[i];
        if (item->kind != ITEM_REPEAT && (item->phase == UPDATED || sized[i].is_zero))
            *item = (CostItem){ .kind = ITEM_WAIT };
    }
}

/* Messages that bring attention its keys take nothing; or all do. */
static void leave_out_messages(const Parts *parts, const CostList *list, const SizedItem *sized, bool all)
{
    for (int i = 0; i < list->count; i++)
        if (sized[i].is_of_keys || (all && list->item[i].kind == ITEM_MESSAGE))
            list->item[i].ranks = 1, list->item[i].bytes = 0, list->item[i].is_timed = false;
        else if (list->item[i].kind == ITEM_REPEAT)
            leave_out_messages(parts, list->item[i].body, parts->s->item + sized[i].body.first, all);
}

static void read_state(const Parts *parts)
{
    Block *b = parts->block;
    b->rest = sum_of(parts->sizing, parts->s->held);
    for (int i = 0; i < parts->weights->repeats; i++) {
        const double copies = sum_of(parts->sizing, parts->s->held_of[i]);
        b->held[i] = copies / (double)parts->weights->copies[i];
        b->rest += copies;
    }
}

static void read_alone(const Parts *parts)
{
    Block *block = parts->block;
    const Range items = parts->s->list[0];
    const SizedItem *sized = parts->s->item + items.first;
    const CostList *step = sized_list(parts->sizing, items);
    const int at = micro_item(step, sized, (double)block->turns);
    note_links(parts, step, sized, at >= 0);
    if (block->of.is_silent)
        leave_out_messages(parts, step, sized, true);
    block->step = seconds_of(parts, step->item, step->count);
    if (at >= 0) {
        block->once = seconds_of(parts, step->item, at) + seconds_of(parts, step->item + at + 1, step->count - at - 1);
        block->sent.computed = computed_beside(parts, step, at);
        note_sent(parts, step, sized, at);
    } else {
        leave_out_zero(step, sized);
    }
    const CostList *micro = at < 0 ? step : step->item[at].body;
    const Range own = at < 0 ? items : sized[at].body;
    read_micro(parts, micro, parts->s->item + own.first);
    block->time.whole = seconds_of(parts, micro->item, micro->count);
    leave_out_messages(parts, micro, parts->s->item + own.first, false);
    block->apart = seconds_of(parts, micro->item, micro->count);
    block->saved_whole = saved_by_loops(parts, own);
    read_state(parts);
}

void read_block(void *context, const Sized *s)
{
    const BlockReading *reading = context;
    Block *block = reading->block;
    Arena arena = { 0 };
    Sizing sizing;
    if (s->refused) {
        block->refused = s->refused;
        return;
    }
    start_sizing(&sizing, reading->p, s, &block->like, &arena);
    const Parts parts = { reading->p, s, &sizing, loads_of(reading->p, block->like.recompute), block };
    if (has_actions(reading->p, s))
        read_actions(&parts);
    else
        read_alone(&parts);
    arena_free(&arena);
}
