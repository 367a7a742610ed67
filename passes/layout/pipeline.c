/* pipeline.c -- cuts the work of a micro-batch in two functions, which a schedule interleaves.
 *
 *   func @micro(...) {                          func @micro.forward(...) {
 *     %1 = gather %wte, %tokens                   %1 = gather %wte, %tokens
 *     %2, %3 = loop %1, %w {callee=h.fwd}         %2, %3 = loop %1, %w {callee=h.fwd}
 *     %4 = dot %2, %head                  =>      return %1, %2, %3
 *     ...                                       }
 *     %7, %8 = loop %6, %3 {callee=h.bwd}       func @micro.backward(%2, %3, ...) {
 *     %9 = scatter_add %7, %tokens                %4 = dot %2, %head ...
 *     return %8, %9                               return %6, %7, %8, %9
 *   }                                           }
 *
 * A schedule that divides the backward part, see weight_loop.h, has a third function, @micro.weights.  Where ranks have
 * several stages, there are so many functions for each chunk: @micro.forward.0, @micro.forward.1, ...  Several repeats
 * that share the stages of a chunk have a loop each in these functions, with what stands between them.
 *
 * The loops run in stages.  What the loop of the forward pass needs, and the loop itself, is forward; all else is
 * backward, the last stage's head too: so nothing of its logits is kept from one to the other.  What the loops carry,
 * and what is sent from one chunk to the next, is returned by the functions: it enters and leaves stages, and so its
 * memory belongs to the caller, whose loop over micro-batches gets the attribute `stages`.  Its meaning stays that of a
 * loop.
 */
#include "map.h"
#include "micro.h"
#include "schedule/slots.h"
#include "simplify/cleanup.h"
#include "split_loop.h"
#include "uses.h"
#include "weight_loop.h"

typedef struct {
    Module *m;
    Func *micro;
    MicroParts parts;
    Op *last; /* before the calls are added */
} Cut;

static Value *copy_of(Builder b, const Op *loop, Value *value)
{
    b.loc = loop->loc, b.path = loop->path, b.where = loop->where;
    return BUILD(&b, OP_reorder, NO_ATTRS, value);
}

/* Is it computed from numbers alone?  Each kernel that reads it computes it again. */
static bool is_of_numbers(const Value *value)
{
    const Op *op = value->def;
    bool all = op && (info(op)->family == LEAF || info(op)->family == POINTWISE);
    for (int i = 0; all && i < op->args.count; i++)
        all = is_of_numbers(arg(op, i));
    return all;
}

/* Has the value memory that nothing else is in? */
static bool has_own_memory(const Value *value)
{
    return value->def && info(value->def)->family != VIEW && !is_of_numbers(value);
}

/* Is it written only on the stages that need it?  Collectives and loops run on all that have its type; a message, when
 * the schedule has it. */
static bool is_written_where_needed(const Value *value)
{
    const Op *op = value->def;
    return is_send(op) || (info(op)->family != CONTROL && !(info(op)->traits & (MOVES | SENDS | WAITS | WISHES)));
}

/* What a loop carries is received into the memory of its operand, and sent from that of the body's result: neither may
 * be that of another value, and nothing but the message may write the former.  (Carried values may trade places, or be
 * read elsewhere, too.) */
static void own_carried(const Cut *cut, Op *loop)
{
    Func *body = find_func(cut->m, loop->attrs.callee);
    for (int i = 0; i < loop->attrs.carried; i++) {
        Value *given = arg(loop, i), *left = body->results.at[i];
        if (!has_own_memory(given) || !is_written_where_needed(given) || uses_in(cut->micro, given) != 1)
            loop->args.at[i] = copy_of(builder_at(cut->m, cut->micro, loop), loop, given);
        if (!has_own_memory(left) || index_of(&body->results, left) != i)
            body->results.at[i] = copy_of(builder_at(cut->m, body, NULL), loop, left);
    }
}

/* --- One part as a function ------------------------------------------------------------------------ */

typedef struct {
    Func *func;
    Map inside; /* values of the micro-batch -> those of the function */
    Values args, outputs;
} Part;

static Value *inside(Cut *cut, Part *to, Builder *b, Value *value)
{
    Value *own = map_get(&to->inside, value);
    if (own)
        return own;
    if (value->def && info(value->def)->family == LEAF) { /* made again rather than kept */
        own = build_op(b, value->def->kind, value->def->attrs, 0, NULL);
    } else {
        own = add_param(cut->m, to->func, value->name, value->type);
        push_value(&cut->m->arena, &to->args, value);
    }
    map_put(&to->inside, value, own);
    return own;
}

static const Op *next_op(const Cut *cut, const Op *op) { return op == cut->last ? NULL : op->next; }

static bool is_read_outside(const Cut *cut, const Value *value, int part)
{
    for (const Op *op = cut->micro->first; op; op = next_op(cut, op))
        if (part_of(&cut->parts, op) != part && index_of(&op->args, value) >= 0)
            return true;
    return index_of(&cut->micro->results, value) >= 0;
}

static void give_back(Cut *cut, Part *to, Value *value)
{
    if (index_of(&to->outputs, value) >= 0)
        return;
    push_value(&cut->m->arena, &to->outputs, value);
    push_value(&cut->m->arena, &to->func->results, map_get(&to->inside, value));
}

static Name part_name(const Cut *cut, const StagePart *part)
{
    static const char *const names[] = { "forward", "backward", "weights" };
    const char *name = names[part->kind];
    return cut->parts.chunks == 1 ? intern_format(cut->m, "%s.%s", cut->micro->name, name)
                                  : intern_format(cut->m, "%s.%s.%d", cut->micro->name, name, part->chunk);
}

/* Moves the ops of one part into a function, and calls it. */
static void cut_part(Cut *cut, const StagePart *loops, Map *instead)
{
    Module *m = cut->m;
    const int part = part_number(&cut->parts, loops->kind, loops->chunk);
    Part to = { .func = add_func(m, part_name(cut, loops), PLAIN), .inside.arena = &m->arena };
    for (const Op *op = cut->micro->first; op; op = next_op(cut, op)) {
        if (part_of(&cut->parts, op) != part || info(op)->family == LEAF)
            continue;
        Builder b = { .module = m, .func = to.func, .loc = op->loc, .path = op->path, .where = op->where };
        for (int i = 0; i < op->args.count; i++)
            inside(cut, &to, &b, arg(op, i));
        clone_mapped(&b, op, &to.inside);
    }
    for (int k = 0; k < loops->nloops; k++)
        for (int i = 0; i < loops->loop[k]->attrs.carried; i++) {
            give_back(cut, &to, arg(loops->loop[k], i));
            give_back(cut, &to, loops->loop[k]->results.at[i]);
        }
    for (const Op *op = cut->micro->first; op; op = next_op(cut, op))
        for (int i = 0; i < op->results.count && part_of(&cut->parts, op) == part; i++)
            if (info(op)->family != LEAF && (is_send(op) || is_read_outside(cut, op->results.at[i], part)))
                give_back(cut, &to, op->results.at[i]);
    Builder b = builder_at(m, cut->micro, NULL);
    b.path = loops->loop[0]->path, b.where = loops->loop[0]->where, b.loc = loops->loop[0]->loc;
    Values args = { 0 };
    for (int i = 0; i < to.args.count; i++) {
        Value *now = map_get(instead, to.args.at[i]);
        push_value(&m->arena, &args, now ? now : to.args.at[i]);
    }
    Op *call = build(&b, OP_call, (Attrs){ .callee = to.func->name, .stages = m->train.stages }, args.count, args.at);
    for (int i = 0; i < to.outputs.count; i++) {
        call->results.at[i]->name = to.outputs.at[i]->name;
        map_put(instead, to.outputs.at[i], call->results.at[i]);
    }
}

static void replace_ops(Cut *cut)
{
    Map instead = { .arena = &cut->m->arena };
    cut->last = cut->micro->last;
    for (int number = 0; number < N_ACTION_KINDS * cut->parts.chunks; number++)
        if (part_numbered(&cut->parts, number))
            cut_part(cut, part_numbered(&cut->parts, number), &instead);
    for (int i = 0; i < cut->micro->results.count; i++) {
        Value *now = map_get(&instead, cut->micro->results.at[i]);
        cut->micro->results.at[i] = now ? now : cut->micro->results.at[i];
    }
    for (Op *op = cut->last, *before; op; op = before) {
        before = op->prev;
        remove_op(cut->micro, op);
    }
}

/* Does the message leave a chunk for the next one, from the last stage of the former to the first of the latter? */
static bool joins_chunks(const Cut *cut, const Op *op)
{
    const MicroParts *parts = &cut->parts;
    const int number = part_of(parts, op);
    const bool first_of_kind = number % parts->chunks == 0;
    if (number >= part_number(parts, WEIGHT_ACTION, parts->chunks - 1) || first_of_kind || !is_send(op) ||
        !arg(op, 0)->def)
        return false;
    const StagePart *before = part_numbered(parts, number - 1), *part = part_numbered(parts, number);
    return part_of(parts, arg(op, 0)->def) < number &&
           same_ranks(arg(op, 0)->type.on, end_rank(cut->m, before->loop[before->nloops - 1], true)) &&
           same_ranks(result(op)->type.on, end_rank(cut->m, part->loop[0], false));
}

/* Other messages between stages would be sent where the schedule does not expect them. */
static const Op *stray_message(const Cut *cut)
{
    const Axes axis = 1u << cut->m->kind_axis;
    for (const Op *op = cut->micro->first; op; op = op->next)
        if (info(op)->traits & SENDS && (is_send(op) || op->attrs.axis & axis) && !joins_chunks(cut, op))
            return op;
    return NULL;
}

/* A loop in stages inside another loop: a micro-batch passes all stages several times. */
static const Op *nested_loop(const Module *m, const Func *micro)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->role == PLAIN && f != micro ? f->first : NULL; op; op = op->next)
            if (is_split_loop(op))
                return op;
    return NULL;
}

static bool refuse_cut(const Module *m, const Op *at, const char *why)
{
    error_at(m->diags, (Where){ .at = at->loc, .help = "schedule = naive" }, "%s: %s",
             at->path ? at->path : info(at)->name, why);
    return false;
}

static bool refuse_parts(const Cut *cut, const Op *at)
{
    return refuse_cut(cut->m, at,
                      "a micro-batch does not pass the stages of the pipeline once forward and once backward");
}

static bool passes_all_stages(const Cut *cut, const StagePart *part)
{
    uint64_t passed = 0;
    for (int i = 0; i < part->nloops; i++)
        passed |= ranks_passed(cut->m, part->loop[i]).at;
    return !unless_all(cut->m, (RankSet){ passed, cut->m->kind_axis }).at;
}

/* Can a schedule interleave the micro-batches? */
static bool can_cut(Cut *cut, const Op *loop)
{
    const Op *nested = nested_loop(cut->m, cut->micro);
    if (nested)
        return refuse_cut(cut->m, nested, "the stages of a pipeline are in a repeat that is inside another one");
    bool good = loop && find_parts(cut->m, cut->micro, &cut->parts);
    for (int chunk = 0; good && chunk < cut->parts.chunks; chunk++)
        good = passes_all_stages(cut, part_doing(&cut->parts, FORWARD_ACTION, chunk));
    return good || (loop && refuse_parts(cut, loop));
}

/* The gradients of weights, and then all else. */
static bool divide(Cut *cut, bool splits_backward)
{
    for (int chunk = 0; chunk < cut->parts.chunks; chunk++) {
        const StagePart *forward = part_doing(&cut->parts, FORWARD_ACTION, chunk);
        const StagePart *backward = part_doing(&cut->parts, BACKWARD_ACTION, chunk);
        for (int i = 0; i < backward->nloops; i++) {
            Op *loop = backward->loop[i];
            if (splits_backward)
                divide_backward(cut->m, cut->micro, &loop);
            own_carried(cut, forward->loop[i]);
            own_carried(cut, loop);
        }
    }
    if (!find_parts(cut->m, cut->micro, &cut->parts)) /* with what has been divided */
        return refuse_parts(cut, cut->micro->last);
    const Op *misplaced = assign_parts(&cut->parts), *stray = misplaced ? NULL : stray_message(cut);
    if (misplaced)
        return refuse_cut(cut->m, misplaced, "this part of the pipeline needs what a later one computes");
    return !stray || refuse_cut(cut->m, stray,
                                "a stage of the pipeline needs this of another one, not only what the repeat carries");
}

/* Do the loops go through the ranks as the stages of the schedule do? */
static bool check_placement(const Cut *cut, const PipelineSchedule *s)
{
    for (int chunk = 0; chunk < cut->parts.chunks; chunk++) {
        const Op *loop = part_doing(&cut->parts, FORWARD_ACTION, chunk)->loop[0];
        if (runs_to_last_rank(loop) != (s->placement != VEE || chunk == 0))
            return refuse_cut(cut->m, loop, "this goes through the ranks in another order than the schedule");
    }
    return true;
}

void pass_pipeline(Module *m);
void pass_pipeline(Module *m)
{
    if (m->train.stages <= STAGES_NAIVE)
        return;
    inline_calls(m);
    Op *loop = micro_loop(m);
    Cut cut = { .m = m, .micro = loop ? find_func(m, loop->attrs.callee) : NULL };
    if ((loop && loop->attrs.stages) || !can_cut(&cut, loop))
        return;
    share_equal(cut.micro); /* now, not when carried values have their memory */
    const PipelineSchedule *schedule = schedule_of_loop(m, loop, m->train.stages, cut.parts.chunks);
    if (!schedule || !check_placement(&cut, schedule) || !divide(&cut, schedule->splits_backward))
        return;
    replace_ops(&cut);
    loop->attrs.stages = m->train.stages;
}
