/* block.c -- bounds from what a micro-batch takes without stages.
 *
 * The parts of a step that repeat are the same functions in all layouts that split a micro-batch alike: a copy of a
 * repeat forward and backward, and what is before, between and after the repeats.  So a layout is compiled without its
 * pipeline, first with as few data-parallel ranks as there can be and without zero, once for all that have the same
 * axes inside a micro-batch, then with what zero does.  The actions of any pipeline are made of these parts, with the
 * copies that its stages have (share_copies.h), and run as simulate_schedule() says.  What is done once a step counts
 * as the mean of all stages. */
#include "structure.h"

#include "layout/balance.h"
#include "layout/share_copies.h"
#include "schedule/schedule.h"

#include <math.h>
#include <string.h>

/* Seconds of the parts of a micro-batch; of `repeats` repeats in the order of the model. */
typedef struct Block {
    PlanLayout like;
    bool is_summed; /* are there several micro-batches? */
    int64_t micros; /* of these, as many as data-parallel ranks of `like` leave */
    const char *refused;
    double forward[MAX_REPEATS], backward[MAX_REPEATS]; /* of a copy */
    double beside_forward[MAX_REPEATS + 1],
        beside_backward[MAX_REPEATS + 1]; /* before each repeat, and after the last */
    double saved[MAX_REPEATS];            /* bytes that a copy keeps for its backward */
    double handed_on;                     /* bytes of a message between stages */
    double whole, saved_whole;            /* all of a micro-batch, its bytes */
    double once, computed;                /* seconds of what is done once a step; without messages */
    double step;                          /* seconds of a step of one stage, with all micro-batches */
    double rest;                          /* bytes of a rank but what micro-batches save */
    double at_head;                       /* bytes beside these, between forward and backward pass */
    struct Block *next;
} Block;

enum { BLOCK_LISTS = 4096 };

typedef struct BlockCache {
    Block *first[BLOCK_LISTS]; /* by a hash of the layout */
    StageWeights weights[RECOMPUTE_AUTO];
    struct Generated *generated;
} BlockCache;

/* --- The layout that is compiled --------------------------------------------------------------------------- */

/* Is an axis outside of it one that splits a micro-batch, so that its ranks are as far apart as this one says? */
static bool is_inside_another(const Planner *p, const PlanLayout *layout, int axis)
{
    for (int i = 0; i < axis; i++)
        if (layout->size[i] > 1 && !p->axis[i].is_pipeline && !p->axis[i].is_batch)
            return true;
    return false;
}

/* The layout without stages; and without zero, where any number of data-parallel ranks do the same. */
static PlanLayout block_layout(const Planner *p, const PlanLayout *layout, bool with_zero)
{
    PlanLayout block = *layout;
    block.schedule = ONE_F_ONE_B, block.chunks = 1;
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].is_pipeline)
            block.size[i] = 1;
        else if (!with_zero && p->axis[i].is_batch && block.size[i] > 2 && !is_inside_another(p, layout, i))
            block.size[i] = 2;
    if (!with_zero)
        block.zero = 0, block.overlaps = false;
    return block;
}

/* --- Its parts ------------------------------------------------------------------------------------------------ */

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

/* The repeat of the pipeline whose copies the item runs; -1: none. */
static int repeat_of(const Parts *parts, const CostItem *item)
{
    for (int i = 0; i < parts->weights->repeats; i++)
        if (item->kind == ITEM_REPEAT && item->op->attrs.dims.dim[0].name == parts->copies[i])
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

/* Of operands or of results, which may be in their place. */
static double bytes_at(const Module *m, const Op *op)
{
    double read = 0, written = 0;
    for (int i = 0; i < op->args.count; i++)
        if (index_of(&op->args, arg(op, i)) == i && find_dim(&arg(op, i)->type, m->batch) >= 0)
            read += (double)local_bytes(m, &arg(op, i)->type);
    for (int i = 0; i < op->results.count; i++)
        written += (double)local_bytes(m, &op->results.at[i]->type);
    return fmax(read, written);
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
        double *beside = backward ? b->beside_backward : b->beside_forward;
        beside[turns_back         ? repeat + 1
               : i == list->count ? 0
                                  : passed] += seconds_of(parts, &list->item[from], i - from);
        if (repeat >= 0) {
            (turns_back ? b->backward : b->forward)[repeat] += seconds_of_copy(parts, &list->item[i]);
            passed = turns_back ? passed : repeat + 1;
            if (!turns_back)
                note_saved(parts, list->item[i].op, repeat);
        }
        from = i + 1;
    }
}

/* The loop over micro-batches, among the items of the step; -1: there is none. */
static int micro_item(const CostList *step)
{
    for (int i = 0; i < step->count; i++)
        if (step->item[i].kind == ITEM_REPEAT && strcmp(step->item[i].op->attrs.dims.dim[0].name, "micro") == 0)
            return i;
    return -1;
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

typedef struct {
    Planner *p;
    Block *block;
} Reading;

/* The dims that count copies are found by their names in the program with stages. */
static void read_block(void *context, Module *m, const Classes *classes, const char *why)
{
    const Reading *reading = context;
    Planner *p = reading->p;
    Block *block = reading->block;
    Arena arena = { 0 };
    if (!m) {
        block->refused = why;
        return;
    }
    const StepCost cost = step_cost(m, classes, &arena);
    const CostList *step = &cost.before[0];
    const int at = micro_item(step);
    Parts parts = {
        .p = p, .cost = &cost, .weights = &p->blocks->weights[block->like.recompute], .block = block, .arena = &arena
    };
    for (int i = 0; i < parts.weights->repeats; i++)
        parts.copies[i] = intern_text(m, parts.weights->dim[i]);
    const CostList *micro = at < 0 ? without_zero(step, &arena) : step->item[at].body;
    read_micro(&parts, micro);
    block->whole = seconds_of(&parts, micro->item, micro->count);
    if (at >= 0) {
        block->once =
            seconds_of(&parts, step->item, at) + seconds_of(&parts, step->item + at + 1, step->count - at - 1);
        block->computed = computed_beside(&parts, step, at);
        step->item[at].turns = (double)block->micros;
    }
    block->step = seconds_of(&parts, step->item, step->count);
    block->saved_whole = saved_by_loops(m, micro);
    block->rest = held_by_step(m, func_with_role(m, STEP), at < 0 ? NULL : step->item[at].op);
    arena_free(&arena);
}

static unsigned hash_of(const PlanLayout *l)
{
    uint64_t hash =
        (uint64_t)l->microbatch * 31 + l->attend * 7 + l->recompute * 5 + (uint64_t)(l->zero + 1) * 3 + l->overlaps;
    for (int i = 0; i < MAX_AXES; i++)
        hash = (hash ^ (uint64_t)l->size[i]) * 0x9E3779B97F4A7C15u;
    return (unsigned)(hash >> 40) % BLOCK_LISTS;
}

static Block *new_block(Planner *p, const PlanLayout *layout, bool is_summed)
{
    Block *block = NEW(p->arena, Block);
    Block **first = &p->blocks->first[hash_of(layout)];
    *block = (Block){ .like = *layout, .is_summed = is_summed, .micros = micro_batches(p, layout), .next = *first };
    *first = block;
    with_structure(p, layout, is_summed ? 2 : 1, read_block, &(Reading){ p, block });
    return block;
}

static bool is_alike(const PlanLayout *a, const PlanLayout *b)
{
    return memcmp(a->size, b->size, sizeof a->size) == 0 && a->microbatch == b->microbatch && a->attend == b->attend &&
           a->recompute == b->recompute && a->zero == b->zero && a->overlaps == b->overlaps;
}

static Block *find_alike(Planner *p, const PlanLayout *layout, bool with_zero, bool is_summed)
{
    const PlanLayout like = block_layout(p, layout, with_zero);
    for (Block *block = p->blocks->first[hash_of(&like)]; block; block = block->next)
        if (block->is_summed == is_summed && is_alike(&block->like, &like))
            return block;
    return new_block(p, &like, is_summed);
}

static Block *find_block(Planner *p, const PlanLayout *layout, bool with_zero)
{
    return find_alike(p, layout, with_zero, micro_batches(p, layout) > 1);
}

/* --- What the stages of a pipeline share ------------------------------------------------------------------------ */

static void read_weights(Planner *p, Recompute policy)
{
    Run run = { 0 };
    const char *why;
    StageWeights *weights = &p->blocks->weights[policy];
    PlanLayout two = { .microbatch = 1, .recompute = policy, .zero = -1, .chunks = 1 };
    for (int i = 0; i < p->naxes; i++)
        two.size[i] = p->axis[i].is_pipeline ? 2 : 1;
    const PassOptions passes = { .stop_after = "recompute", .unchecked = true };
    Module *m = compile_layout(p, &two, 2, &passes, &run, &why);
    *weights = m ? weigh_stages(m) : (StageWeights){ 0 };
    for (int i = 0; i < weights->repeats; i++)
        weights->dim[i] = arena_text(p->arena, "%s", weights->dim[i]);
    if (m)
        free_module(m);
    arena_free(&run.arena);
}

void prepare_blocks(Planner *p)
{
    static const Recompute policies[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    p->blocks = NEW(p->arena, BlockCache);
    for (int i = 0; i < 3 && p->copies; i++)
        read_weights(p, policies[i]);
}

const StageWeights *stage_weights(const Planner *p, Recompute policy) { return &p->blocks->weights[policy]; }

/* One repeat: the copies of each stage of a rank, see balance.c. */
static void share_one(const StageWeights *w, const PlanLayout *layout, int ranks, int64_t *copies)
{
    ChunkLoads c = { .ranks = ranks, .count = layout->chunks, .copy = w->copy[0] > 0 ? w->copy[0] : 1 };
    int64_t part[MAX_CHUNKS][MAX_STAGE_RANKS];
    for (int chunk = 0; chunk < c.count; chunk++) {
        c.copies[chunk] = w->copies[0] / c.count + (chunk < w->copies[0] % c.count);
        c.reversed[chunk] = layout->schedule == ZB_V && chunk % 2;
    }
    const int last = c.count - 1;
    c.beside[0][0] += w->beside[0];
    c.beside[last][c.reversed[last] ? 0 : ranks - 1] += w->beside[1];
    share_chunks(&c, part);
    for (int chunk = 0; chunk < c.count; chunk++)
        for (int i = 0; i < ranks; i++)
            copies[chunk * ranks + i] = part[chunk][c.reversed[chunk] ? ranks - 1 - i : i];
}

/* Several: as a sequence of copies; in chunks about evenly. */
static void share_several(Arena *arena, const StageWeights *w, int64_t all, int stages, bool evenly, int64_t *copies)
{
    double *flops = NEW_ARRAY(arena, double, all);
    int64_t at = 0;
    flops[0] = w->beside[0];
    for (int i = 0; i < w->repeats; i++) {
        for (int64_t copy = 0; copy < w->copies[i]; copy++)
            flops[at++] += w->copy[i] > 0 ? w->copy[i] : 1;
        flops[at - 1] += w->beside[i + 1];
    }
    for (int i = 0; i < stages; i++)
        copies[i] = all / stages + (i >= stages - all % stages);
    if (!evenly)
        share_copies(arena, flops, all, stages, copies);
}

/* --- The actions of a pipeline ------------------------------------------------------------------------------------ */

typedef struct {
    double forward[MAX_STAGES], backward[MAX_STAGES], saved[MAX_STAGES], nothing[MAX_STAGES];
} StageCosts; /* of a micro-batch, by stage */

/* Each stage has the next copies of the repeats, and what is beside those that begin or end there. */
static void fill_stages(const Block *b, const StageWeights *w, int stages, const int64_t *copies, StageCosts *s)
{
    int repeat = 0;
    int64_t left = w->copies[0];
    s->forward[0] = b->beside_forward[0], s->backward[0] = b->beside_backward[0];
    for (int stage = 0; stage < stages; stage++)
        for (int64_t i = 0; i < copies[stage]; i++) {
            s->forward[stage] += b->forward[repeat];
            s->backward[stage] += b->backward[repeat];
            s->saved[stage] += b->saved[repeat];
            if (--left == 0) {
                repeat++;
                s->forward[stage] += b->beside_forward[repeat];
                s->backward[stage] += b->beside_backward[repeat];
                left = repeat < w->repeats ? w->copies[repeat] : -1;
            }
        }
}

static double message_between(const Planner *p, const PlanLayout *layout, double bytes)
{
    Axes axes = 0;
    for (int i = 0; i < p->naxes; i++)
        axes |= p->axis[i].is_pipeline ? 1u << i : 0;
    const Group group = group_along(p->machine, layout->size, p->naxes, axes);
    return message_seconds(p->machine, OP_send, bytes, (Group){ 2, group.on_one_machine == group.ranks ? 2 : 1 });
}

/* A rank begins when the first micro-batch has come to it, is busy at least as long as undivided backward actions take,
 * and, where these are not divided, is followed by those of the ranks before it. */
static double busiest(const PipelineSchedule *s, const StageCosts *stages)
{
    double most = 0, around = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        const int first = stage_on_rank(s, rank, 0);
        double work = 0;
        for (int chunk = 0; chunk < s->chunks; chunk++) {
            const int stage = stage_on_rank(s, rank, chunk);
            work += stages->forward[stage] + stages->backward[stage];
        }
        most = fmax(most, around + work * s->micros);
        around += stages->forward[first] + (s->splits_backward ? 0 : stages->backward[first]);
    }
    return most;
}

/* Made once for all layouts with the same numbers; NULL: there is none. */
typedef struct Generated {
    PlanSchedule kind;
    int ranks, chunks, micros;
    PipelineSchedule *schedule;
    struct Generated *next;
} Generated;

static const PipelineSchedule *schedule_of(Planner *p, const PlanLayout *layout)
{
    static const char *const names[N_SCHEDULES] = { "1f1b", "interleaved", "zb-h1", "zb-v" };
    const Generated like = {
        layout->schedule, (int)pipeline_ranks(p, layout), layout->chunks, (int)micro_batches(p, layout), NULL, NULL
    };
    const char *why, *help;
    for (const Generated *g = p->blocks->generated; g; g = g->next)
        if (g->kind == like.kind && g->ranks == like.ranks && g->chunks == like.chunks && g->micros == like.micros)
            return g->schedule;
    Generated *made = NEW(p->arena, Generated);
    *made = like;
    made->next = p->blocks->generated, p->blocks->generated = made;
    made->schedule = make_schedule(p->arena, names[like.kind], like.ranks, like.chunks, like.micros, &why, &help);
    if (made->schedule && !order_messages(p->arena, made->schedule, &why))
        made->schedule = NULL;
    return made->schedule;
}

/* What micro-batches keep on the rank that keeps most. */
static double most_saved(const PipelineSchedule *schedule, const StageCosts *s)
{
    double most = 0;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        double saved = 0;
        for (int chunk = 0; chunk < schedule->chunks; chunk++) {
            const int stage = stage_on_rank(schedule, rank, chunk);
            saved += s->saved[stage] * schedule->activations[stage];
        }
        most = fmax(most, saved);
    }
    return most;
}

static BlockBound bound_of_pipeline(Planner *p, const PlanLayout *layout, const Block *b, bool simulate)
{
    const StageWeights *w = &p->blocks->weights[layout->recompute];
    const int ranks = (int)pipeline_ranks(p, layout), stages = ranks * layout->chunks;
    const PipelineSchedule *schedule = schedule_of(p, layout);
    int64_t copies[MAX_STAGES];
    Arena arena = { 0 };
    BlockBound bound = { 0, 0 };
    if (!schedule || !w->repeats)
        return bound;
    if (w->repeats == 1)
        share_one(w, layout, ranks, copies);
    else
        share_several(&arena, w, p->copies, stages, layout->chunks > 1, copies);
    StageCosts *s = NEW(&arena, StageCosts);
    fill_stages(b, w, stages, copies, s);
    const Costs costs = { s->forward, s->backward, s->nothing, message_between(p, layout, b->handed_on) };
    Timeline timeline;
    bound.memory = most_saved(schedule, s);
    bound.seconds = busiest(schedule, s);
    if (simulate && !schedule->splits_backward && simulate_schedule(&arena, schedule, &costs, &timeline))
        bound.seconds = timeline.makespan;
    arena_free(&arena);
    return bound;
}

typedef double (*Wait)(const Planner *p, const PlanLayout *layout, double forward, double backward);

static double wait_of(const Planner *p, const PlanLayout *layout, const Block *b, Wait wait)
{
    const StageWeights *w = &p->blocks->weights[layout->recompute];
    double forward = 0, backward = 0;
    for (int i = 0; i < w->repeats; i++)
        forward += b->forward[i] * (double)w->copies[i], backward += b->backward[i] * (double)w->copies[i];
    return pipeline_ranks(p, layout) > 1 ? wait(p, layout, forward, backward) : 0;
}

static BlockBound less(double seconds, double memory)
{
    return (BlockBound){ seconds * (1 - STRUCTURE_ERROR), memory };
}

BlockBound micro_bound(Planner *p, const PlanLayout *layout)
{
    const double stages = (double)pipeline_ranks(p, layout), micros = (double)micro_batches(p, layout);
    const Block *b = find_block(p, layout, false);
    return less(b->refused ? INFINITY : b->whole * micros / stages + wait_of(p, layout, b, least_wait), 0);
}

/* What zero adds to a micro-batch and to a step is the same for all micro-batches and policies: of the smallest one. */
static BlockBound added_by_zero(Planner *p, const PlanLayout *layout)
{
    PlanLayout one = *layout;
    one.microbatch = 1, one.recompute = RECOMPUTE_NONE, one.attend = GATHER, one.overlaps = false;
    const double stages = (double)pipeline_ranks(p, layout), micros = (double)micro_batches(p, layout);
    const bool is_summed = micros > 1;
    const Block *without = find_alike(p, &one, false, is_summed), *with = find_alike(p, &one, true, is_summed);
    if (with->refused || without->refused)
        return (BlockBound){ 0, 0 };
    const double seconds =
        layout->overlaps || !is_summed ? 0 : fmax(0, with->whole - without->whole) * micros + with->once;
    return (BlockBound){ seconds / stages, with->rest / stages };
}

static BlockBound bound_with(Planner *p, const PlanLayout *layout, Wait wait)
{
    const Block *b = find_block(p, layout, false);
    const BlockBound zero = added_by_zero(p, layout);
    const double stages = (double)pipeline_ranks(p, layout), micros = (double)micro_batches(p, layout);
    return b->refused ? (BlockBound){ INFINITY, 0 }
                      : less(b->whole * micros / stages + wait_of(p, layout, b, wait) + zero.seconds,
                             b->saved_whole / stages + zero.memory + (stages == 1 ? b->at_head : 0));
}

BlockBound zero_bound(Planner *p, const PlanLayout *layout) { return bound_with(p, layout, least_wait); }

BlockBound schedule_bound(Planner *p, const PlanLayout *layout, int closeness)
{
    const double stages = (double)pipeline_ranks(p, layout);
    if (closeness == BY_WAITS || (closeness < WITH_ZERO && stages == 1))
        return bound_with(p, layout, wait_in_schedule);
    const Block *b = find_block(p, layout, closeness == WITH_ZERO);
    if (b->refused)
        return (BlockBound){ INFINITY, 0 };
    if (stages == 1)
        return less(b->step, b->rest + b->saved_whole + b->at_head);
    const BlockBound once = closeness == WITH_ZERO
                                ? (BlockBound){ (layout->overlaps ? b->computed : b->once) / stages, b->rest / stages }
                                : added_by_zero(p, layout);
    const BlockBound bound = bound_of_pipeline(p, layout, b, closeness >= SIMULATED);
    return less(bound.seconds + once.seconds, bound.memory + once.memory);
}
