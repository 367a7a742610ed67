/* interp_schedule.c -- the reference interpreter runs the micro-batches of a pipeline as its ranks do.
 *
 * A loop over micro-batches means that they run one after the other, and so the interpreter runs it before the memory
 * pass: that is what the results are compared with.  In its memory, each rank does the events of its schedule in their
 * order, and waits for the other side of each message.  An action runs its part of a micro-batch on one stage: it reads
 * and writes the slots of that micro-batch, and finds there what earlier actions and messages have left.  So an op in
 * the part of the wrong action reads what nobody has computed, and a value whose slot is taken again too early, or that
 * is sent from another slot, is not where its reader looks for it.
 *
 * What is computed is that of the stage at hand alone: on other ranks it is no number.
 */
#include "interp_shards.h"
#include "map.h"
#include "needed.h"
#include "schedule/slots.h"
#include "split_loop.h"
#include "storage.h"

typedef struct {
    Interp *in;
    const Op *loop;
    const Func *micro;
    const MicroSlots *slots;
    int axis, ranks;
    int64_t first_slot; /* its address */
    Sharded *sum;       /* what the loop carries: of each rank, as its last action has left it */
    Map *held;          /* by micro-batch: value of its function -> Sharded, of each rank what it has of it by now */
    Iterations micros;
} Pipeline;

/* An action. */
struct ActionRun {
    Pipeline *pipeline;
    const StagePart *part;
    const Func *func; /* of the part */
    int micro;
    Map leaving; /* loop in stages -> what it hands on */
};

static Sharded unwritten_value(Interp *in, const Type *type)
{
    const Sharded held = new_sharded(in, type);
    for (int rank = 0; held.shard && rank < in->ranks; rank++)
        for (int64_t i = 0; i < held.shard[rank].count && is_float(type->dtype); i++)
            held.shard[rank].data[i] = unwritten_number(in, type->dtype);
    return held;
}

static Sharded *held(Pipeline *p, const Value *value, int micro)
{
    Sharded *known = map_get(&p->held[micro], value);
    if (!known) {
        known = NEW(&p->in->arena, Sharded);
        *known = unwritten_value(p->in, &value->type);
        map_put(&p->held[micro], value, known);
    }
    return known;
}

/* Copies the shards of the ranks of the present stage. */
static void take(const Interp *in, Sharded *to, const Sharded *from)
{
    for (int rank = 0; rank < in->ranks; rank++)
        if (rank_runs(in, rank))
            to->shard[rank] = from->shard[rank];
}

/* The call's result that is this value of its function. */
static const Value *result_of_part(const StagePart *part, const Func *f, const Value *value)
{
    const int i = index_of(&f->results, value);
    return i < 0 ? NULL : part->call->results.at[i];
}

/* The value's address on the ranks of a stage; the function at hand is that of the micro-batch. */
static int64_t place_of(const Pipeline *p, const Value *value, int rank, int micro)
{
    const int number = ring_of(p->slots, value);
    if (value->storage->base == BY_POINTER || number < 0)
        return address_of(p->in, value);
    const Ring *ring = &p->slots->ring[number];
    return p->first_slot + ring->offset + micro % ring->slots[rank] * ring->bytes + value->storage->at - ring->begin;
}

/* --- In an action ------------------------------------------------------------------------------------ */

bool runs_in_action(const Interp *in, const Op *op)
{
    return !is_send(op) && ranks_running(in->m, op) & in->running.at;
}

static bool is_needed(const Interp *in, const Value *value)
{
    return ranks_needing(in->m->needed, value) & in->running.at;
}

bool is_left_out(const Interp *in, const Value *value) { return in->action && !is_needed(in, value); }

void leave_results(Interp *in, const Op *op, Sharded results[])
{
    const ActionRun *now = in->action;
    for (int i = 0; i < op->results.count; i++) {
        const Value *value = op->results.at[i];
        const Value *brought = in->func == now->func ? result_of_part(now->part, now->func, value) : NULL;
        results[i] = brought ? *held(now->pipeline, brought, now->micro) : unwritten_value(in, &value->type);
    }
}

void note_leaving(Interp *in, const Op *loop, const Sharded carried[])
{
    map_put(&in->action->leaving, loop, (void *)(uintptr_t)carried);
}

/* --- Actions ------------------------------------------------------------------------------------------- */

/* The call of a part's function: its frame is inside that of the micro-batch, its operands and results are in slots. */
static Activation activation_of(const Pipeline *p, const Op *call, int rank, int micro)
{
    const int nargs = call->args.count, count = nargs + call->results.count;
    int64_t *pointer = NEW_ARRAY(&p->in->arena, int64_t, count + 1);
    for (int i = 0; i < count; i++)
        pointer[i] = place_of(p, arg_or_result(call, i), rank, micro);
    return (Activation){ p->in->now.base + call->attrs.frame, pointer };
}

/* What the part has computed for its stage, and what leaves its loops, whatever the types say. */
static void take_results(Pipeline *p, const ActionRun *action, const Sharded out[])
{
    const StagePart *part = action->part;
    for (int i = 0; i < part->call->results.count; i++)
        if (is_needed(p->in, part->call->results.at[i]))
            take(p->in, held(p, part->call->results.at[i], action->micro), &out[i]);
    for (int k = 0; k < part->nloops; k++) {
        const Op *loop = part->loop[k];
        const Sharded *leaving = map_get(&action->leaving, loop);
        for (int i = 0; leaving && i < count_passed_on(loop); i++)
            take(p->in, held(p, result_of_part(part, action->func, loop->results.at[i]), action->micro), &leaving[i]);
    }
}

/* The sums that the part has added to.  One that is made elsewhere goes where the next micro-batch reads it. */
static void take_sums(Pipeline *p, const ActionRun *action)
{
    Interp *in = p->in;
    for (int i = 0; i < p->loop->attrs.carried; i++) {
        const Value *sum = p->micro->results.at[i];
        if (sum->def != action->part->call || !is_needed(in, sum))
            continue;
        take(in, &p->sum[i], held(p, sum, action->micro));
        copy_bytes(in, address_of(in, sum), p->micros.carried[i], local_bytes(in->m, &sum->type));
    }
}

static bool run_part(Pipeline *p, ActionRun *action, int rank)
{
    Interp *in = p->in;
    const Op *call = action->part->call;
    Sharded *args = NEW_ARRAY(&in->arena, Sharded, call->args.count + 1);
    Sharded *out = NEW_ARRAY(&in->arena, Sharded, call->results.count + 1);
    for (int i = 0; i < call->args.count; i++)
        args[i] = *held(p, arg(call, i), action->micro);
    if (!forget_frame(in, call, action->func))
        return false;
    const Activation micro = in->now;
    in->now = activation_of(p, call, rank, action->micro);
    in->action = action;
    const bool good = run_func(in, action->func, args, out);
    in->action = NULL;
    in->now = micro;
    if (!good)
        return false;
    take_results(p, action, out);
    take_sums(p, action);
    return true;
}

static bool run_action(Pipeline *p, int rank, Action a)
{
    Interp *in = p->in;
    const StagePart *part = part_doing(&p->slots->parts, a.kind, a.stage / p->ranks);
    if (!part) /* of weights, where the chunk has none */
        return true;
    ActionRun action = { p, part, find_func(in->m, part->call->attrs.callee), a.micro, { .arena = &in->arena } };
    in->iteration = arena_text(&in->arena, "%s ", action_text(&in->arena, a));
    in->running = (RankSet){ UINT64_C(1) << rank, p->axis };
    begin_iteration(in, &p->micros, a.micro);
    const bool good = run_part(p, &action, rank);
    end_iteration(in, &p->micros);
    in->running = (RankSet){ 0 };
    return good;
}

/* --- Messages ------------------------------------------------------------------------------------------ */

static int receiving_stage(const Message *m) { return m->backward ? m->stage - 1 : m->stage + 1; }

/* The next stage enters with the values that this one has left. */
static bool pass_value(Pipeline *p, const Message *m, const Value *left, const Value *entered)
{
    Interp *in = p->in;
    const int from = rank_of_stage(p->slots->schedule, m->stage);
    const int to = rank_of_stage(p->slots->schedule, receiving_stage(m));
    const Sharded *sent = held(p, left, m->micro);
    Sharded *got = held(p, entered, m->micro);
    MessageEnd ends[] = { { left, place_of(p, left, from, m->micro), 0 },
                          { entered, place_of(p, entered, to, m->micro), 0 } };
    for (int rank = 0; rank < in->ranks; rank++) {
        if (coordinate(in, rank, p->axis) != from)
            continue;
        ends[0].rank = rank;
        ends[1].rank = rank + (to - from) * in->axis_step[p->axis];
        got->shard[ends[1].rank] = sent->shard[rank];
        if (!pass_message(in, &ends[0], &ends[1], &sent->shard[rank]))
            return false;
    }
    return true;
}

/* Within a chunk, the values that its loop carries from one rank to the other; to the next chunk, the operands of
 * its part. */
static bool pass_values(Pipeline *p, const Message *m)
{
    const PipelineSchedule *s = p->slots->schedule;
    const int to = receiving_stage(m), ranks[] = { rank_of_stage(s, m->stage), rank_of_stage(s, to) };
    const StagePart *part = part_doing(&p->slots->parts, m->backward ? BACKWARD_ACTION : FORWARD_ACTION, to / p->ranks);
    const Func *f = find_func(p->in->m, part->call->attrs.callee);
    const bool is_inside_chunk = to / p->ranks == m->stage / p->ranks;
    const Op *loop = is_inside_chunk ? crossing_loop(p->in->m, part, ranks[0], ranks[1]) : NULL;
    bool good = true;
    p->in->op = part->call;
    for (int i = 0; good && loop && i < count_passed_on(loop); i++)
        good = pass_value(p, m, result_of_part(part, f, loop->results.at[i]), result_of_part(part, f, arg(loop, i)));
    for (const Op *op = f->first; good && !is_inside_chunk && op; op = op->next)
        if (is_send(op))
            good = pass_value(p, m, arg(part->call, index_of(&f->params, arg(op, 0))),
                              result_of_part(part, f, result(op)));
    return good;
}

static bool run_message(Pipeline *p, const Message *m)
{
    Interp *in = p->in;
    const Action sender = { m->backward ? BACKWARD_ACTION : FORWARD_ACTION, m->stage, m->micro };
    in->iteration = arena_text(&in->arena, "the message of %s ", action_text(&in->arena, sender));
    begin_iteration(in, &p->micros, m->micro);
    const bool good = pass_values(p, m);
    end_iteration(in, &p->micros);
    return good;
}

/* --- The schedule ---------------------------------------------------------------------------------------- */

static bool is_same_message(const Message *a, const Message *b)
{
    return a->backward == b->backward && a->stage == b->stage && a->micro == b->micro;
}

/* The rank at the other side of a message, if it has come to it; -1: not yet. */
static int other_side(const Pipeline *p, const Event *e, const int *next)
{
    const PipelineSchedule *s = p->slots->schedule;
    const int other = rank_of_stage(s, e->sends ? receiving_stage(&e->message) : e->message.stage);
    const Event *there = next[other] < s->nevents[other] ? &s->event[other][next[other]] : NULL;
    const bool meets =
        there && there->is_message && there->sends != e->sends && is_same_message(&there->message, &e->message);
    return meets ? other : -1;
}

/* Reductions of a chunk's sums run after the loop, as all other ops do: no action changes the sums any more. */
static bool run_event(Pipeline *p, int rank, const Event *e)
{
    return e->is_message ? run_message(p, &e->message) : e->reduces || run_action(p, rank, e->action);
}

/* Runs events of a rank until one has to wait. */
static bool run_rank(Pipeline *p, int rank, int *next, bool *moved)
{
    const PipelineSchedule *s = p->slots->schedule;
    for (; next[rank] < s->nevents[rank]; next[rank]++, *moved = true) {
        const Event *e = &s->event[rank][next[rank]];
        const int other = e->is_message ? other_side(p, e, next) : rank;
        if (other < 0)
            return true;
        if (!run_event(p, rank, e))
            return false;
        next[other] += other != rank;
    }
    return true;
}

static bool run_events(Pipeline *p)
{
    const PipelineSchedule *s = p->slots->schedule;
    int *next = NEW_ARRAY(&p->in->arena, int, p->ranks);
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < p->ranks; rank++)
            if (!run_rank(p, rank, next, &moved))
                return false;
    }
    for (int rank = 0; rank < p->ranks; rank++)
        if (next[rank] < s->nevents[rank])
            return cannot_run(p->in, "rank %d of the pipeline waits for a message forever", rank);
    return true;
}

/* A stage that does not need a sum has not added to it.  Everything after the loop runs on all ranks that have a value
 * by its type, so there the stage gets the sum of one that needs it. */
static bool share_sum(Pipeline *p, int i)
{
    Interp *in = p->in;
    const Value *sum = p->loop->results.at[i];
    const uint64_t on = ranks_needing(in->m->needed, sum);
    MessageEnd ends[] = { { sum, address_of(in, sum), 0 }, { sum, address_of(in, sum), 0 } };
    for (int rank = 0; on && rank < in->ranks; rank++) {
        const int stage = coordinate(in, rank, p->axis);
        if (on >> stage & 1 || !rank_holds(in, &sum->type, rank))
            continue;
        ends[0].rank = rank + (__builtin_ctzll(on) - stage) * in->axis_step[p->axis];
        ends[1].rank = rank;
        p->sum[i].shard[rank] = p->sum[i].shard[ends[0].rank];
        if (!pass_message(in, &ends[0], &ends[1], &p->sum[i].shard[rank]))
            return false;
    }
    return true;
}

/* Of a value of the micro-batch's function that no part computes. */
static void give_params(Pipeline *p, const Sharded args[])
{
    Interp *in = p->in;
    const Dim *dim = &p->loop->attrs.dims.dim[0];
    p->sum = NEW_ARRAY(&in->arena, Sharded, p->loop->attrs.carried + 1);
    p->held = NEW_ARRAY(&in->arena, Map, dim->size);
    for (int i = 0; i < p->loop->attrs.carried; i++) {
        p->sum[i] = new_sharded(in, &p->micro->params.at[i]->type);
        take(in, &p->sum[i], &args[i]);
    }
    for (int64_t micro = 0; micro < dim->size; micro++) {
        p->held[micro].arena = &in->arena;
        for (int i = 0; i < p->micro->params.count; i++) {
            Sharded *given = i < p->loop->attrs.carried ? &p->sum[i] : NEW(&in->arena, Sharded);
            if (i >= p->loop->attrs.carried)
                *given = is_sliced(args[i].type, dim) ? element_of(in, &args[i], micro) : args[i];
            map_put(&p->held[micro], p->micro->params.at[i], given);
        }
    }
}

/* Is all of a micro-batch in its parts, with what leaves and enters stages among their results? */
static bool is_cut(Pipeline *p)
{
    Interp *in = p->in;
    for (const Op *op = p->micro->first; op; op = op->next)
        if (!op->attrs.stages)
            return cannot_run(in, "%s is in no part of the micro-batch", info(op)->name);
    for (int k = 0; k < p->slots->parts.count; k++) {
        const StagePart *part = &p->slots->parts.part[k];
        const Func *f = find_func(in->m, part->call->attrs.callee);
        for (int n = 0; n < part->nloops; n++)
            for (int i = 0; i < count_passed_on(part->loop[n]); i++)
                if (!result_of_part(part, f, arg(part->loop[n], i)) ||
                    !result_of_part(part, f, part->loop[n]->results.at[i]))
                    return cannot_run(in, "@%s does not return what its loop carries", f->name);
        for (const Op *op = f->first; op; op = op->next)
            if (is_send(op) && (index_of(&f->params, arg(op, 0)) < 0 || !result_of_part(part, f, result(op))))
                return cannot_run(in, "@%s does not return what it receives", f->name);
    }
    return true;
}

bool run_schedule(Interp *in, const Op *loop, const Func *micro, const Sharded args[], Sharded results[])
{
    Pipeline p = { .in = in, .loop = loop, .micro = micro, .slots = slots_of_loop(in->m, loop) };
    Map *needed = in->m->needed;
    if (!p.slots->schedule || !is_cut(&p) || !begin_iterations(in, loop, micro, &p.micros))
        return false;
    p.axis = in->m->kind_axis;
    p.ranks = p.slots->schedule->ranks;
    p.first_slot = in->now.base + loop->attrs.frame + aligned_bytes(micro->frame) +
                   iteration_buffers(in->m, loop, micro) - p.slots->bytes;
    give_params(&p, args);
    in->m->needed = NULL;
    note_ranks(in->m);
    const char *around = in->iteration;
    bool good = run_events(&p);
    in->iteration = around;
    for (int i = 0; good && i < loop->attrs.carried; i++) {
        good = share_sum(&p, i);
        results[i].shard = p.sum[i].shard;
    }
    in->m->needed = needed;
    return good;
}
