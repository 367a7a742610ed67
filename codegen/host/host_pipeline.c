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

#include "schedule/slots.h"
#include "stages.h"

#include <inttypes.h>
#include <string.h>

/* One half of the micro-batch. */
typedef struct {
    FuncText t; /* of the function that runs it */
    LoopText l; /* the loop over micro-batches */
    const PipelineSlots *slots;
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
                                             : slice_of(&half->l, arg(half->l.op, i), micro->params.at[i]);
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

/* The statement that puts a sum where the next micro-batch reads it, if this half has written it elsewhere. */
static const char *returned_sum(HalfText *half, int i)
{
    Module *m = half->t.h->m;
    const Value *sum = half->l.callee->results.at[i], *whole = half->l.op->results.at[i];
    if (sum->def != half->call || is_carried_in_place(half->l.op, half->l.callee, i))
        return "";
    return half->t.h->dialect->copy(m, pointer_to(&half->t, whole), sum_pointer(&half->l, i),
                                    local_bytes(m, &whole->type));
}

static void write_half(HalfText *half, const char *name)
{
    Host *h = half->t.h;
    Module *m = h->m;
    const Op *call = half->call;
    const HostFunc *c = host_half(h, find_func(m, call->attrs.callee));
    const char **items = NEW_ARRAY(&m->arena, const char *, c->npointers + 2);
    const int64_t frame = half->l.op->attrs.frame + call->attrs.frame;
    int count = 0;
    items[count++] = "rt";
    if (takes_frame(find_func(m, call->attrs.callee)))
        items[count++] = in_frame(&half->t, frame);
    open_text(&half->t.body);
    for (int i = 0; i < c->npointers; i++)
        if (c->takes[i])
            items[count++] =
                value_pointer(half, i < call->args.count ? arg(call, i) : call->results.at[i - call->args.count]);
    char *text = wrapped_list(m, arena_text(&m->arena, "%s(", c->name), count, items, ");\n", 4);
    for (int i = 0; i < half->l.op->attrs.carried; i++)
        text = arena_text(&m->arena, "%s%s", text, returned_sum(half, i));
    write_statement(&half->t, place_text(m, call), text);
    FILL(h->functions.out, "static void $name(Rt *rt, char *arena, int64_t micro)\n{\n    $body\n}\n\n",
         { "name", name }, { "body", close_text(&m->arena, &half->t.body) });
}

/* --- Tables ---------------------------------------------------------------------------------- */

static char *slots_text(Module *m, const int *slots, int stages)
{
    char *text = "";
    for (int stage = 0; stage < stages; stage++)
        text = arena_text(&m->arena, "%s%s%d", text, stage ? ", " : "", slots[stage]);
    return text;
}

static void write_rings(Host *h, const PipelineSlots *slots, int64_t base)
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

/* The messages of one direction: a row for each value that the loop carries. */
static int write_messages(Host *h, const PipelineSlots *slots, const Op *call, const char *name)
{
    Module *m = h->m;
    const Func *half = find_func(m, call->attrs.callee);
    const Op *loop = stage_loop(half);
    fprintf(h->functions.out, "static const RtStageMessage %s[] = {\n", name);
    for (int i = 0; i < loop->attrs.carried; i++) {
        const Value *left = call->results.at[index_of(&half->results, loop->results.at[i])];
        const Value *entered = call->results.at[index_of(&half->results, arg(loop, i))];
        const RtCollective c = stage_message(m, &left->type, h->pipeline);
        const char *cause = arena_text(&m->arena, "pipeline.%s: %s", loop->attrs.callee, type_text(m, &left->type));
        fprintf(h->functions.out, "    { %d, %d, %d },\n", add_message(h, &c, left->type.dtype, loop, cause),
                ring_of(slots, left), ring_of(slots, entered));
    }
    fputs("};\n\n", h->functions.out);
    return (int)loop->attrs.carried;
}

static char event_letter(const Event *e)
{
    if (!e->is_message)
        return "FBW"[e->action.kind];
    return e->message.backward ? (e->sends ? 'S' : 'R') : (e->sends ? 's' : 'r');
}

static void write_events(Host *h, const PipelineSchedule *s)
{
    enum { IN_ROW = 12 };
    FILE *out = h->functions.out;
    for (int rank = 0; rank < s->ranks; rank++) {
        fprintf(out, "static const RtEvent events_%d[] = {", rank);
        for (int i = 0; i < s->nevents[rank]; i++) {
            const Event *e = &s->event[rank][i];
            fprintf(out, "%s{ '%c', %d },", i % IN_ROW ? " " : "\n    ", event_letter(e),
                    e->is_message ? e->message.micro : e->action.micro);
        }
        fputs("\n};\n", out);
    }
    fputs("\n", out);
}

static void write_table(Host *h, const PipelineSlots *slots, const int nmessages[2], bool has_weights)
{
    Module *m = h->m;
    const PipelineSchedule *s = slots->schedule;
    const char *weights = has_weights ? ", weight_action" : "";
    char *events = "", *counts = "";
    for (int rank = 0; rank < s->ranks; rank++) {
        events = arena_text(&m->arena, "%s%sevents_%d", events, rank ? ", " : "", rank);
        counts = arena_text(&m->arena, "%s%s%d", counts, rank ? ", " : "", s->nevents[rank]);
    }
    FILL(h->functions.out,
         "static const RtPipeline pipeline = {\n"
         "    .axis = $axis,\n"
         "    .ring = rings,\n"
         "    .message = { activations, gradients },\n"
         "    .nmessages = { $forward, $backward },\n"
         "    .action = { forward_action, backward_action$weights },\n"
         "    .event = (const RtEvent *const[]){ $events },\n"
         "    .nevents = (const int[]){ $counts },\n"
         "    .micros = $micros,\n"
         "};\n\n",
         { "axis", arena_text(&m->arena, "%d", h->pipeline) }, { "weights", weights },
         { "forward", arena_text(&m->arena, "%d", nmessages[0]) },
         { "backward", arena_text(&m->arena, "%d", nmessages[1]) }, { "events", events }, { "counts", counts },
         { "micros", arena_text(&m->arena, "%d", s->micros) });
}

/* --- The statement ----------------------------------------------------------------------------- */

void write_pipeline(LoopText *l)
{
    FuncText *t = l->t;
    Host *h = t->h;
    const PipelineSlots *slots = pipeline_slots(h->m, l->op);
    const Op *forward = l->callee->first, *backward = forward ? forward->next : NULL;
    const Op *weights = backward ? backward->next : NULL;
    if (!slots->schedule || !backward || !forward->attrs.stages || (weights ? weights : backward) != l->callee->last) {
        internal_error(h->m, l->op, "a micro-batch is not cut in two halves");
        return;
    }
    int nmessages[2];
    const char *const names[] = { "forward_action", "backward_action", "weight_action" };
    const Op *const calls[] = { forward, backward, weights };
    for (int i = 0; i < 3 && calls[i]; i++)
        host_half(h, find_func(h->m, calls[i]->attrs.callee));
    fputs("static const RtPipeline pipeline;\n\n", h->functions.out);
    for (int i = 0; i < 3 && calls[i]; i++) {
        HalfText half = {
            .t = { .h = h, .f = t->f, .c = t->c, .names.module = h->m, .frame = t->frame, .stages = ALL_STAGES },
            .l = *l,
            .slots = slots,
            .call = calls[i]
        };
        half.l.t = &half.t;
        half.l.index = "micro";
        new_identifier(&half.t.names, "rt");
        new_identifier(&half.t.names, t->frame);
        new_identifier(&half.t.names, "micro");
        new_identifier(&half.t.names, "pipeline");
        write_half(&half, names[i]);
    }
    write_rings(h, slots, l->buffer + iteration_buffers(h->m, l->op, l->callee) - slots->bytes);
    nmessages[0] = write_messages(h, slots, forward, "activations");
    nmessages[1] = write_messages(h, slots, backward, "gradients");
    write_events(h, slots->schedule);
    write_table(h, slots, nmessages, weights != NULL);
    for (int i = 0; i < l->op->attrs.carried; i++)
        copy_initial(l, arg(l->op, i), l->op->results.at[i]);
    fprintf(l->before.out, "rt_pipeline(rt, &pipeline, %s);\n", t->frame);
}
