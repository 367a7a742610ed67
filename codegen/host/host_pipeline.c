/* host_pipeline.c -- a loop over micro-batches that the stages of a pipeline run in the order of a schedule.
 *
 *   static void run_forward(Rt *rt, char *arena, int64_t micro)
 *   {
 *       float *x = rt_slot(rt, &pipeline, arena, 0, micro);
 *       run_m_forward(rt, arena + 4096, wte, tokens + micro * 8, x, ...);
 *   }
 *   static const RtPipeline pipeline = { ... };
 *
 * and in run_step
 *
 *   rt_pipeline(rt, &pipeline, arena);
 */
#include "host_loop.h"

#include "needed.h"
#include "schedule/slots.h"
#include "split_loop.h"

#include <inttypes.h>

/* One half of the micro-batch. */
typedef struct {
    FuncText t; /* of the function that runs it */
    LoopText l; /* the loop over micro-batches */
    const MicroSlots *slots;
    const Op *call;
} HalfText;

/* Where micro-batches write what they add up to result i of the loop, in its frame. */
static const char *sum_pointer(LoopText *l, int i)
{
    int64_t at = l->buffer;
    for (int j = 0; j < i; j++)
        if (!is_carried_in_place(l->op, l->callee, j))
            at += aligned_bytes(local_bytes(l->t->h->m, &l->op->results.at[j]->type));
    return is_carried_in_place(l->op, l->callee, i)
               ? pointer_to(l->t, l->op->results.at[i])
               : typed_in_frame(l->t, element_type(l->op->results.at[i]->type.dtype), at);
}

/* The pointer that the micro-batch's function gets as its pointer `number`. */
static const char *micro_pointer(HalfText *half, int number)
{
    const Func *micro = half->l.callee;
    for (int i = 0; i < half->l.op->attrs.carried; i++) {
        const Storage *s = micro->results.at[i]->storage;
        if (!is_carried_in_place(half->l.op, micro, i) && s->base == BY_POINTER && s->pointer == number)
            return sum_pointer(&half->l, i);
    }
    for (int i = 0; i < micro->params.count; i++) {
        const Storage *s = micro->params.at[i]->storage;
        if (s->base != BY_POINTER || s->pointer != number)
            continue;
        return i < half->l.op->attrs.carried ? pointer_to(&half->t, half->l.op->results.at[i])
                                             : slice_of(&half->l, arg(half->l.op, i));
    }
    internal_error(half->t.h->m, half->l.op, "a result of a micro-batch is not carried in place");
    return "";
}

/* A value of the micro-batch's function: a slot, or one that the function is given. */
static const char *value_pointer(HalfText *half, const Value *value)
{
    Arena *arena = &half->t.h->m->arena;
    value = viewed(value);
    const Storage *s = value->storage;
    if (s->base == BY_POINTER) {
        const char *pointer = micro_pointer(half, s->pointer);
        return s->at ? arena_text(arena, "%s + %" PRId64, pointer, s->at / dtype_bytes(value->type.dtype)) : pointer;
    }
    const int ring = ring_of(half->slots, value);
    if (ring < 0)
        internal_error(half->t.h->m, half->l.op, "a value of a micro-batch has no slots");
    const int64_t offset = ring < 0 ? 0 : (s->at - half->slots->ring[ring].begin) / dtype_bytes(value->type.dtype);
    const char *slot = arena_text(arena, "rt_slot(rt, &pipeline, arena, %d, micro)", ring);
    return offset ? arena_text(arena, "(%s *)%s + %" PRId64, element_type(value->type.dtype), slot, offset) : slot;
}

/* The statement that puts a sum where the next micro-batch reads it, if this half has written it elsewhere: on the
 * stages that have memory for it. */
static const char *returned_sum(HalfText *half, int i)
{
    Module *m = half->t.h->m;
    const Value *sum = half->l.callee->results.at[i], *whole = half->l.op->results.at[i];
    if (sum->def != half->call || is_carried_in_place(half->l.op, half->l.callee, i))
        return "";
    const RankSet on = { ranks_needing(m->needed, sum), half->t.h->m->kind_axis };
    const char *copy = half->t.h->dialect->copy(m, pointer_to(&half->t, whole), sum_pointer(&half->l, i),
                                                own_bytes(&half->t, &whole->type));
    if (!on.at)
        return "";
    if (on.at == ALL_RANKS)
        return copy;
    return arena_text(&m->arena, "if (%s)\n    %s", ranks_condition(&half->t, on), copy);
}

static void write_half(HalfText *half, const char *name)
{
    Host *h = half->t.h;
    Module *m = h->m;
    const Op *call = half->call;
    const HostFunc *c = host_half(h, find_func(m, call->attrs.callee));
    const char **items = NEW_ARRAY(&m->arena, const char *, c->npointers + 2);
    const char *frame = in_frame(&half->t, half->l.op->attrs.frame);
    int count = 0;
    items[count++] = "rt";
    if (takes_frame(find_func(m, call->attrs.callee)))
        items[count++] = in_frame_of(h, half->l.callee, frame, call->attrs.frame);
    open_text(&half->t.body);
    half->t.own_rank = NULL;
    for (int i = 0; i < c->npointers; i++)
        if (c->takes[i])
            items[count++] =
                value_pointer(half, i < call->args.count ? arg(call, i) : call->results.at[i - call->args.count]);
    char *text = wrapped_list(m, arena_text(&m->arena, "%s(", c->name), count, items, ");\n", 4);
    for (int i = 0; i < half->l.op->attrs.carried; i++)
        text = arena_text(&m->arena, "%s%s", text, returned_sum(half, i));
    write_statement(&half->t, place_text(m, call), text);
    FILL(h->functions.out, "static void $name(Rt *rt, char *arena, int64_t micro)\n{\n    $stage\n    $body\n}\n\n",
         { "name", name }, { "stage", own_rank_text(&half->t) }, { "body", close_text(&m->arena, &half->t.body) });
}

/* --- Tables ---------------------------------------------------------------------------------- */

static char *slots_text(Module *m, const int *slots, int stages)
{
    char *text = "";
    for (int stage = 0; stage < stages; stage++)
        text = arena_text(&m->arena, "%s%s%d", text, stage ? ", " : "", slots[stage]);
    return text;
}

static void write_rings(Host *h, const MicroSlots *slots, int64_t base)
{
    Module *m = h->m;
    FILE *out = h->functions.out;
    fputs("static const RtRing rings[] = {\n", out);
    for (int i = 0; i < slots->nrings; i++) {
        const Ring *ring = &slots->ring[i];
        fprintf(out, "    { %" PRId64 ", %" PRId64 ", (const int[]){ %s } }, /* %s */\n", base + ring->offset,
                ring->bytes, slots_text(m, ring->slots, slots->schedule->ranks),
                comment_text(m, type_text(m, &ring->value->type)));
    }
    fputs("};\n\n", out);
}

/* The messages from one stage to the next one in their direction. */
typedef struct {
    Host *h;
    const MicroSlots *slots;
    Text rows;
    int count;
} Messages;

static void add_row(Messages *t, const Op *op, const Value *left, const Value *entered)
{
    Module *m = t->h->m;
    const RtCollective c = message_between(m, &left->type, t->h->m->kind_axis);
    const char *of = op->attrs.callee ? op->attrs.callee : op->path ? op->path : info(op)->name;
    const char *cause = arena_text(&m->arena, "pipeline.%s: %s", of, type_text(m, &left->type));
    if (!is_row_major(m, left) || !is_row_major(m, entered))
        internal_error(m, op, "a message between stages is not row-major in memory");
    fprintf(t->rows.out, "    { %d, %d, %d },\n", add_message(t->h, &c, left->type.dtype, op, cause),
            ring_of(t->slots, left), ring_of(t->slots, entered));
    t->count++;
}

/* Writes the table; returns what refers to it. */
static const char *write_messages(Messages *t, const char *name)
{
    Arena *arena = &t->h->m->arena;
    char *rows = close_text(arena, &t->rows);
    if (!t->count)
        return "{ NULL, 0 }"; /* an array is not empty */
    fprintf(t->h->functions.out, "static const RtStageMessage %s[] = {\n%s};\n\n", name, rows);
    return arena_text(arena, "{ %s, %d }", name, t->count);
}

/* The call's result that is this value of its function. */
static const Value *result_of_part(Module *m, const Op *call, const Value *value)
{
    const int i = index_of(&find_func(m, call->attrs.callee)->results, value);
    return i >= 0 ? call->results.at[i] : (internal_error(m, call, "a message is no result of its part"), value);
}

static const char *messages_name(Module *m, const StagePart *part, const char *which, int number)
{
    const char *what = part->kind == FORWARD_ACTION ? "activations" : "gradients";
    return arena_text(&m->arena, "%s_%s_%d_%d", what, which, part->chunk, number);
}

/* A row for each value that the loop carries from stage to stage. */
static const char *write_inner(Host *h, const MicroSlots *slots, const StagePart *part, const Op *loop, int number)
{
    Messages t = { h, slots, .count = 0 };
    open_text(&t.rows);
    for (int i = 0; i < count_passed_on(loop); i++)
        add_row(&t, loop, result_of_part(h->m, part->call, loop->results.at[i]),
                result_of_part(h->m, part->call, arg(loop, i)));
    return write_messages(&t, messages_name(h->m, part, "in", number));
}

/* A row for each value that the part receives from the chunk before. */
static const char *write_border(Host *h, const MicroSlots *slots, const StagePart *part)
{
    Messages t = { h, slots, .count = 0 };
    const Func *f = find_func(h->m, part->call->attrs.callee);
    open_text(&t.rows);
    for (const Op *op = f->first; op; op = op->next)
        if (is_send(op))
            add_row(&t, op, arg(part->call, index_of(&f->params, arg(op, 0))),
                    result_of_part(h->m, part->call, result(op)));
    return write_messages(&t, messages_name(h->m, part, "to", 0));
}

_Static_assert((int)FORWARD_ACTION == RT_FORWARD && (int)BACKWARD_ACTION == RT_BACKWARD &&
                   (int)WEIGHT_ACTION == RT_WEIGHTS,
               "actions have the same numbers");

/* In the order of RT_EVENT_LETTERS: a message back follows the one forward. */
static int event_kind(const Event *e)
{
    if (e->reduces)
        return RT_REDUCES;
    return e->is_message ? (e->sends ? RT_SENDS : RT_RECEIVES) + e->message.backward : (int)e->action.kind;
}

enum { IN_ROW = 12, EVENT_BYTES = 32 }; /* events in a line; the text of one is shorter */

/* Appends a number at `at`; returns its end. */
static char *add_number(char *at, int number)
{
    char digits[16];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

/* Appends "s0.12 ", see RtEvent.  There are thousands, which printf() would take long for. */
static char *add_event(char *end, const Event *e)
{
    const Message *message = &e->message;
    const int to = message->stage + (message->backward ? -1 : 1);
    *end++ = RT_EVENT_LETTERS[event_kind(e)];
    end = add_number(end, !e->is_message ? e->action.stage : e->sends ? message->stage : to);
    *end++ = '.';
    end = add_number(end, e->is_message ? message->micro : e->action.micro);
    *end++ = ' ', *end = '\0';
    return end;
}

static void write_events(Host *h, const PipelineSchedule *s)
{
    FILE *out = h->functions.out;
    for (int rank = 0; rank < s->ranks; rank++) {
        fprintf(out, "static const char events_%d[] =", rank);
        for (int i = 0; i < s->nevents[rank]; i += IN_ROW) {
            char line[IN_ROW * EVENT_BYTES], *end = line;
            for (int k = i; k < i + IN_ROW && k < s->nevents[rank]; k++)
                end = add_event(end, &s->event[rank][k]);
            fprintf(out, "\n    \"%s\"", line);
        }
        fputs(";\n", out);
    }
    fputs("\n", out);
}

static const char *action_name(Module *m, const StagePart *part)
{
    static const char *const names[] = { "forward", "backward", "weight" };
    return part ? arena_text(&m->arena, "%s_action_%d", names[part->kind], part->chunk) : "NULL";
}

static const char *reduction_name(Module *m, int chunk) { return arena_text(&m->arena, "reduce_%d", chunk); }

/* The next op from `op` on that the schedule starts when the chunk has ended; NULL: there is none. */
static const Op *next_of_chunk(Module *m, const Op *op, int chunk)
{
    op = next_early(op);
    while (op && chunk_of_early(m, op) != chunk)
        op = next_early(op->next);
    return op;
}

static bool reduces_chunk(Module *m, const Op *loop, int chunk) { return next_of_chunk(m, loop->next, chunk); }

/* Lists with an item for each stage that sends, and for each chunk. */
typedef struct {
    char *message[2], *action[N_ACTION_KINDS], *reduce;
} Lists;

static void append(Module *m, char **list, const char *item)
{
    *list = *list ? arena_text(&m->arena, "%s, %s", *list, item) : arena_text(&m->arena, "%s", item);
}

/* The messages of a stage, in one table for all stages that a loop passes. */
typedef struct {
    Map of_loop, of_part; /* what refers to the table */
} Tables;

static void write_message_tables(Host *h, const MicroSlots *slots, Tables *tables)
{
    for (int i = 0; i < slots->parts.count; i++) {
        const StagePart *part = &slots->parts.part[i];
        const bool is_first = part->chunk == (part->kind == FORWARD_ACTION ? 0 : slots->schedule->chunks - 1);
        if (part->kind == WEIGHT_ACTION)
            continue;
        for (int k = 0; k < part->nloops; k++)
            map_put(&tables->of_loop, part->loop[k], (void *)(uintptr_t)write_inner(h, slots, part, part->loop[k], k));
        if (!is_first)
            map_put(&tables->of_part, part, (void *)(uintptr_t)write_border(h, slots, part));
    }
}

static const char *messages_of(Host *h, const MicroSlots *slots, const Tables *tables, ActionKind kind, int stage)
{
    const PipelineSchedule *s = slots->schedule;
    const int next = kind == FORWARD_ACTION ? stage + 1 : stage - 1;
    if (next < 0 || next == stage_count(s))
        return "{ NULL, 0 }";
    const StagePart *part = part_doing(&slots->parts, kind, next / s->ranks);
    if (next / s->ranks != stage / s->ranks)
        return map_get(&tables->of_part, part);
    const Op *loop = crossing_loop(h->m, part, rank_of_stage(s, stage), rank_of_stage(s, next));
    return loop ? map_get(&tables->of_loop, loop) : (internal_error(h->m, part->call, "no loop joins two stages"), "");
}

static Lists write_lists(Host *h, const MicroSlots *slots)
{
    Lists lists = { .message = { NULL } };
    Tables tables = { .of_loop.arena = &h->m->arena, .of_part.arena = &h->m->arena };
    write_message_tables(h, slots, &tables);
    for (ActionKind kind = FORWARD_ACTION; kind <= BACKWARD_ACTION; kind++)
        for (int stage = 0; stage < stage_count(slots->schedule); stage++)
            append(h->m, &lists.message[kind], messages_of(h, slots, &tables, kind, stage));
    for (ActionKind kind = FORWARD_ACTION; kind < N_ACTION_KINDS; kind++)
        for (int chunk = 0; chunk < slots->schedule->chunks; chunk++)
            append(h->m, &lists.action[kind], action_name(h->m, part_doing(&slots->parts, kind, chunk)));
    for (int chunk = 0; chunk < slots->schedule->chunks; chunk++)
        append(h->m, &lists.reduce, reduces_chunk(h->m, slots->loop, chunk) ? reduction_name(h->m, chunk) : "NULL");
    return lists;
}

/* May actions be recorded? */
static const char *recorded_text(LoopText *l)
{
    int count;
    const char *fed = fed_slices(l, &count);
    if (!fed)
        return "";
    return count ? arena_text(&l->t->h->m->arena,
                              "    .records = true,\n    .nfed = %d,\n    .fed = (const RtFed[]){ %s },\n", count, fed)
                 : "    .records = true,\n";
}

static void write_table(LoopText *l, const MicroSlots *slots)
{
    Host *h = l->t->h;
    Module *m = h->m;
    const PipelineSchedule *s = slots->schedule;
    const Lists lists = write_lists(h, slots);
    char *events = NULL, *stages = NULL;
    for (int rank = 0; rank < s->ranks; rank++) {
        char *own = NULL;
        for (int chunk = 0; chunk < s->chunks; chunk++)
            append(m, &own, arena_text(&m->arena, "%d", stage_on_rank(s, rank, chunk)));
        append(m, &stages, arena_text(&m->arena, "(const int[]){ %s }", own));
        append(m, &events, arena_text(&m->arena, "events_%d", rank));
    }
    fputs("#define MESSAGES(...) ((const RtStageMessages[]){ __VA_ARGS__ })\n"
          "#define ACTIONS(...) ((void (*const[])(Rt *, char *, int64_t)){ __VA_ARGS__ })\n\n",
          h->functions.out);
    FILL(h->functions.out,
         "static const RtPipeline pipeline = {\n"
         "    .axis = $axis,\n"
         "    .ranks = $ranks,\n"
         "    .chunks = $chunks,\n"
         "    .micros = $micros,\n"
         "    .stage = (const int *const[]){ $stages },\n"
         "    .ring = rings,\n"
         "    .message = { MESSAGES($activations), MESSAGES($gradients) },\n"
         "    .action = { ACTIONS($forward), ACTIONS($backward), ACTIONS($weights) },\n"
         "    .reduce = (void (*const[])(Rt *, char *)){ $reduce },\n"
         "    .events = (const char *const[]){ $events },\n"
         "$recorded"
         "};\n\n",
         { "axis", arena_text(&m->arena, "%d", h->m->kind_axis) }, { "ranks", arena_text(&m->arena, "%d", s->ranks) },
         { "chunks", arena_text(&m->arena, "%d", s->chunks) }, { "micros", arena_text(&m->arena, "%d", s->micros) },
         { "stages", stages }, { "activations", lists.message[0] }, { "gradients", lists.message[1] },
         { "forward", lists.action[FORWARD_ACTION] }, { "backward", lists.action[BACKWARD_ACTION] },
         { "weights", lists.action[WEIGHT_ACTION] }, { "reduce", lists.reduce }, { "events", events },
         { "recorded", recorded_text(l) });
}

/* --- The statement ----------------------------------------------------------------------------- */

static void write_action(const LoopText *l, const MicroSlots *slots, const StagePart *part)
{
    FuncText *t = l->t;
    Host *h = t->h;
    HalfText half = {
        .t = { .h = h, .f = t->f, .c = t->c, .names.module = h->m, .frame = t->frame, .ranks = ALL_RANKS },
        .l = *l,
        .slots = slots,
        .call = part->call
    };
    half.l.t = &half.t;
    half.l.index = h->dialect->records_turns ? "rt_slice(rt, micro)" : "micro";
    new_identifier(&half.t.names, "rt");
    new_identifier(&half.t.names, t->frame);
    new_identifier(&half.t.names, "micro");
    new_identifier(&half.t.names, "pipeline");
    write_half(&half, action_name(h->m, part));
}

/* The function that starts the reductions of a chunk's gradients, cast if they are sent in another dtype. */
static void write_reduction(const LoopText *l, int chunk)
{
    Host *h = l->t->h;
    Module *m = h->m;
    FuncText t = { .h = h, .f = l->t->f, .c = l->t->c, .names.module = m, .frame = l->t->frame, .ranks = ALL_RANKS };
    new_identifier(&t.names, "rt");
    new_identifier(&t.names, t.frame);
    open_text(&t.body);
    for (const Op *op = l->op; (op = next_of_chunk(m, op->next, chunk));) {
        write_for_ranks(&t, ranks_running(m, op));
        op = write_one(&t, op);
    }
    write_for_ranks(&t, ALL_RANKS);
    char *body = close_text(&m->arena, &t.body);
    FILL(h->functions.out, "static void $name(Rt *rt, char *arena)\n{\n    $stage\n    $body\n}\n\n",
         { "name", reduction_name(m, chunk) }, { "stage", own_rank_text(&t) }, { "body", body });
}

void write_scheduled(LoopText *l)
{
    FuncText *t = l->t;
    Host *h = t->h;
    const MicroSlots *slots = slots_of_loop(h->m, l->op);
    if (!slots->schedule || slots->parts.part[slots->parts.count - 1].call != l->callee->last) {
        internal_error(h->m, l->op, "a micro-batch is not cut in parts");
        return;
    }
    for (int i = 0; i < slots->parts.count; i++)
        host_half(h, find_func(h->m, slots->parts.part[i].call->attrs.callee));
    fputs("static const RtPipeline pipeline;\n\n", h->functions.out);
    for (int i = 0; i < slots->parts.count; i++)
        write_action(l, slots, &slots->parts.part[i]);
    for (int chunk = 0; chunk < slots->schedule->chunks; chunk++)
        if (reduces_chunk(h->m, l->op, chunk))
            write_reduction(l, chunk);
    write_rings(h, slots, l->buffer + iteration_buffers(h->m, l->op, l->callee) - slots->bytes);
    write_events(h, slots->schedule);
    write_table(l, slots);
    for (int i = 0; i < l->op->attrs.carried; i++)
        copy_initial(l, arg(l->op, i), l->op->results.at[i]);
    fprintf(l->before.out, "rt_pipeline(rt, &pipeline, %s);\n", t->frame);
}
