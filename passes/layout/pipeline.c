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
 * A schedule that divides the backward part, see weight_loop.h, has a third function, @micro.weights.
 *
 * The loops run in stages.  What the loop of the forward pass needs, and the loop itself, is forward; all else is
 * backward, the last stage's head too: so nothing of its logits is kept from one to the other.  What the loops carry is
 * returned by both functions: it enters and leaves stages, and so its memory belongs to the caller, whose loop over
 * micro-batches gets the attribute `schedule`.  Its meaning stays that of a loop.
 */
#include "manager/pass.h"
#include "map.h"
#include "schedule/slots.h"
#include "simplify/cleanup.h"
#include "stages.h"
#include "uses.h"
#include "weight_loop.h"

typedef struct {
    Module *m;
    Func *micro;
    Op *forward, *backward, *weights; /* the loops; `weights`: NULL, if `backward` computes their gradients, too */
    Op *last;                         /* before the calls are added */
    Map needed;                       /* ops that `forward` needs, and itself */
} Cut;

static ActionKind part_of(const Cut *cut, const Op *op)
{
    return op == cut->weights ? WEIGHT_ACTION : map_get(&cut->needed, op) ? FORWARD_ACTION : BACKWARD_ACTION;
}

/* The two loops; false if there are more, so that the micro-batch would pass all stages more than once. */
static bool find_loops(Cut *cut)
{
    for (Op *op = cut->micro->first; op; op = op->next) {
        Op **loop = op->attrs.reverse ? &cut->backward : &cut->forward;
        if (!runs_in_stages(op))
            continue;
        if (*loop)
            return false;
        *loop = op;
    }
    return cut->forward && cut->backward;
}

static Value *copy_of(Builder b, const Op *loop, Value *value)
{
    b.loc = loop->loc, b.path = loop->path, b.where = loop->where;
    return BUILD(&b, OP_reorder, NO_ATTRS, value);
}

/* Has the value memory that nothing else is in? */
static bool has_own_memory(const Value *value)
{
    return value->def && info(value->def)->family != VIEW && info(value->def)->family != LEAF;
}

/* Is it written only on the stages that need it?  Collectives and loops run on all that have its type. */
static bool is_written_where_needed(const Value *value)
{
    const Op *op = value->def;
    return info(op)->family != CONTROL && !(info(op)->traits & (MOVES | SENDS | WAITS | WISHES));
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

/* --- One half as a function ------------------------------------------------------------------------ */

typedef struct {
    Func *func;
    Map inside; /* values of the micro-batch -> those of the function */
    Values args, outputs;
} Half;

static Value *inside(Cut *cut, Half *half, Builder *b, Value *value)
{
    Value *own = map_get(&half->inside, value);
    if (own)
        return own;
    if (value->def && info(value->def)->family == LEAF) { /* made again rather than kept */
        own = build_op(b, value->def->kind, value->def->attrs, 0, NULL);
    } else {
        own = add_param(cut->m, half->func, value->name, value->type);
        push_value(&cut->m->arena, &half->args, value);
    }
    map_put(&half->inside, value, own);
    return own;
}

static const Op *next_op(const Cut *cut, const Op *op) { return op == cut->last ? NULL : op->next; }

static bool is_read_outside(const Cut *cut, const Value *value, ActionKind part)
{
    for (const Op *op = cut->micro->first; op; op = next_op(cut, op))
        if (part_of(cut, op) != part && index_of(&op->args, value) >= 0)
            return true;
    return index_of(&cut->micro->results, value) >= 0;
}

static void give_back(Cut *cut, Half *half, Value *value)
{
    if (index_of(&half->outputs, value) >= 0)
        return;
    push_value(&cut->m->arena, &half->outputs, value);
    push_value(&cut->m->arena, &half->func->results, map_get(&half->inside, value));
}

/* Moves the ops of one part into a function, and calls it. */
static void cut_half(Cut *cut, ActionKind part, const Op *loop, const char *name, Map *instead)
{
    Module *m = cut->m;
    Half half = { .func = add_func(m, intern_format(m, "%s.%s", cut->micro->name, name), PLAIN),
                  .inside.arena = &m->arena };
    for (const Op *op = cut->micro->first; op; op = next_op(cut, op)) {
        if (part_of(cut, op) != part || info(op)->family == LEAF)
            continue;
        Builder b = { .module = m, .func = half.func, .loc = op->loc, .path = op->path, .where = op->where };
        Value **own = NEW_ARRAY(&m->arena, Value *, op->args.count + 1);
        for (int i = 0; i < op->args.count; i++)
            own[i] = inside(cut, &half, &b, arg(op, i));
        const Op *clone = clone_op(&b, op, own);
        for (int i = 0; i < op->results.count; i++)
            map_put(&half.inside, op->results.at[i], clone->results.at[i]);
    }
    for (int i = 0; i < loop->attrs.carried; i++) {
        give_back(cut, &half, arg(loop, i));
        give_back(cut, &half, loop->results.at[i]);
    }
    for (const Op *op = cut->micro->first; op; op = next_op(cut, op))
        for (int i = 0; i < op->results.count && part_of(cut, op) == part; i++)
            if (info(op)->family != LEAF && is_read_outside(cut, op->results.at[i], part))
                give_back(cut, &half, op->results.at[i]);
    Builder b = builder_at(m, cut->micro, NULL);
    b.path = loop->path, b.where = loop->where, b.loc = loop->loc;
    Values args = { 0 };
    for (int i = 0; i < half.args.count; i++) {
        Value *now = map_get(instead, half.args.at[i]);
        push_value(&m->arena, &args, now ? now : half.args.at[i]);
    }
    Op *call = build(&b, OP_call, (Attrs){ .callee = half.func->name, .stages = m->train.stages }, args.count, args.at);
    for (int i = 0; i < half.outputs.count; i++) {
        call->results.at[i]->name = half.outputs.at[i]->name;
        map_put(instead, half.outputs.at[i], call->results.at[i]);
    }
}

static void replace_ops(Cut *cut)
{
    Map instead = { .arena = &cut->m->arena };
    cut->last = cut->micro->last;
    cut_half(cut, FORWARD_ACTION, cut->forward, "forward", &instead);
    cut_half(cut, BACKWARD_ACTION, cut->backward, "backward", &instead);
    if (cut->weights)
        cut_half(cut, WEIGHT_ACTION, cut->weights, "weights", &instead);
    for (int i = 0; i < cut->micro->results.count; i++) {
        Value *now = map_get(&instead, cut->micro->results.at[i]);
        cut->micro->results.at[i] = now ? now : cut->micro->results.at[i];
    }
    for (Op *op = cut->last, *before; op; op = before) {
        before = op->prev;
        remove_op(cut->micro, op);
    }
}

/* A message between stages that is not what a loop carries would be sent where the schedule does not expect it. */
static const Op *stray_message(const Cut *cut)
{
    const Axes axis = 1u << pipeline_axis(cut->m);
    for (const Op *op = cut->micro->first; op; op = op->next)
        if (info(op)->traits & SENDS && (info(op)->traits & MOVES || op->attrs.axis & axis))
            return op;
    return NULL;
}

/* A loop in stages inside another loop: a micro-batch passes all stages several times. */
static const Op *nested_loop(const Module *m, const Func *micro)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->role == PLAIN && f != micro ? f->first : NULL; op; op = op->next)
            if (runs_in_stages(op))
                return op;
    return NULL;
}

static bool refuse_cut(const Module *m, const Op *at, const char *why)
{
    error_at(m->diags, (Where){ .at = at->loc, .help = "schedule = naive" }, "%s: %s",
             at->path ? at->path : info(at)->name, why);
    return false;
}

/* Can a schedule interleave the micro-batches? */
static bool can_cut(Cut *cut, const Op *loop)
{
    const Op *nested = nested_loop(cut->m, cut->micro), *stray = loop ? stray_message(cut) : NULL;
    if (nested)
        return refuse_cut(cut->m, nested, "the stages of a pipeline are in a repeat that is inside another one");
    if (loop && !find_loops(cut))
        return refuse_cut(cut->m, loop,
                          "the stages of a pipeline are those of one repeat, once forward and once backward");
    if (stray)
        return refuse_cut(cut->m, stray,
                          "a stage of the pipeline needs this of another one, not only what the repeat carries");
    return loop != NULL;
}

void pass_pipeline(Module *m);
void pass_pipeline(Module *m)
{
    if (m->train.stages <= STAGES_NAIVE)
        return;
    inline_calls(m);
    Op *loop = micro_loop(m);
    Cut cut = { .m = m, .micro = loop ? find_func(m, loop->attrs.callee) : NULL, .needed.arena = &m->arena };
    if (!loop && m->train.stages == STAGES_TABLE &&
        pipeline_axis(m) >= 0) /* nothing to interleave, but it is checked */
        schedule_of_loop(m, NULL, STAGES_TABLE);
    if ((loop && loop->attrs.stages) || !can_cut(&cut, loop))
        return;
    share_equal(cut.micro); /* now, not when carried values have their memory */
    const PipelineSchedule *schedule = schedule_of_loop(m, loop, m->train.stages);
    if (!schedule)
        return;
    if (schedule->splits_backward)
        cut.weights = divide_backward(m, cut.micro, &cut.backward);
    own_carried(&cut, cut.forward);
    own_carried(&cut, cut.backward);
    note_with_operands(&cut.needed, cut.forward);
    replace_ops(&cut);
    loop->attrs.stages = m->train.stages;
}
