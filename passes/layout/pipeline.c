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
#include "manager/pass.h"
#include "map.h"
#include "schedule/slots.h"
#include "simplify/cleanup.h"
#include "stages.h"
#include "uses.h"
#include "weight_loop.h"

/* The loops in stages of a part, in the order of the program: one for each repeat. */
typedef struct {
    int count;
    Op *at[MAX_REPEATS];
} Loops;

/* Parts are numbered as a micro-batch passes them: forward by chunk, backward from the last chunk to the first, and, if
 * they are parts of their own, gradients of weights in that order. */
typedef struct {
    Module *m;
    Func *micro;
    int chunks;
    Loops loops[N_ACTION_KINDS][MAX_CHUNKS]; /* by chunk; of weights: none, if the backward ones have no such part */
    Op *last;                                /* before the calls are added */
    Map part;                                /* op -> its part + 1 */
} Cut;

static int part_of(const Cut *cut, const Op *op) { return (int)(intptr_t)map_get(&cut->part, op) - 1; }

static const Loops *loops_of_part(const Cut *cut, int part)
{
    const int at = part % cut->chunks;
    return &cut->loops[part / cut->chunks][part < cut->chunks ? at : cut->chunks - 1 - at];
}

static bool add_loop(Loops *loops, Op *op)
{
    if (loops->count == MAX_REPEATS)
        return false;
    loops->at[loops->count++] = op;
    return true;
}

/* The chunk whose forward loop is along the same dim; -1: there is none. */
static int chunk_along(const Cut *cut, Name dim)
{
    for (int chunk = 0; chunk < cut->chunks; chunk++)
        for (int i = 0; i < cut->loops[FORWARD_ACTION][chunk].count; i++)
            if (cut->loops[FORWARD_ACTION][chunk].at[i]->attrs.dims.dim[0].name == dim)
                return chunk;
    return -1;
}

static bool add_forward(Cut *cut, const Op *before, Op *op)
{
    cut->chunks += !before || begins_chunk(cut->m, before, op);
    return cut->chunks <= MAX_CHUNKS && add_loop(&cut->loops[FORWARD_ACTION][cut->chunks - 1], op);
}

static bool passes_all_stages(const Cut *cut, const Loops *loops)
{
    uint64_t passed = 0;
    for (int i = 0; i < loops->count; i++)
        passed |= stages_passed(cut->m, loops->at[i]).at;
    return !unless_all(cut->m, (Stages){ passed, pipeline_axis(cut->m) }).at;
}

/* Each repeat of a chunk has a loop forward and a loop backward, along a dim of its own; false: the micro-batch passes
 * some stages more often, or is not differentiated. */
static bool find_loops(Cut *cut)
{
    const Op *before = NULL;
    bool good = true;
    for (Op *op = cut->micro->first; op && good; op = op->next) {
        if (!runs_in_stages(op))
            continue;
        const int chunk = chunk_along(cut, op->attrs.dims.dim[0].name);
        if (op->attrs.reverse)
            good = chunk >= 0 && add_loop(&cut->loops[BACKWARD_ACTION][chunk], op);
        else
            good = chunk < 0 && add_forward(cut, before, op), before = op;
    }
    for (int i = 0; i < cut->chunks && good; i++)
        good = cut->loops[FORWARD_ACTION][i].count == cut->loops[BACKWARD_ACTION][i].count &&
               passes_all_stages(cut, &cut->loops[FORWARD_ACTION][i]);
    return good && cut->chunks > 0;
}

static void set_part(Cut *cut, const Op *op, int part) { map_put(&cut->part, op, (void *)(intptr_t)(part + 1)); }

/* What stands between two chunks, on the stage where the former ends, is of the former: what is sent from there. */
static void assign_before_chunk(Cut *cut, const Map *needed, int chunk)
{
    Map sent = { .arena = &cut->m->arena };
    for (const Op *op = cut->micro->first; op; op = op->next)
        if (map_get(needed, op) && part_of(cut, op) < 0 && is_send(op) && arg(op, 0)->def)
            note_with_operands(&sent, arg(op, 0)->def);
    for (const Op *op = cut->micro->first; op; op = op->next)
        if (map_get(&sent, op) && part_of(cut, op) < 0)
            set_part(cut, op, chunk - 1);
}

/* What a forward loop needs is of its part. */
static void assign_forward(Cut *cut)
{
    for (int chunk = 0; chunk < cut->chunks; chunk++) {
        Map needed = { .arena = &cut->m->arena };
        for (int i = 0; i < cut->loops[FORWARD_ACTION][chunk].count; i++)
            note_with_operands(&needed, cut->loops[FORWARD_ACTION][chunk].at[i]);
        if (chunk)
            assign_before_chunk(cut, &needed, chunk);
        for (const Op *op = cut->micro->first; op; op = op->next)
            if (map_get(&needed, op) && part_of(cut, op) < 0)
                set_part(cut, op, chunk);
    }
}

/* The part of its loops, and of what it carries at first, which nothing else reads; of other ops: the first of the
 * backward ones. */
static void assign_loops(Cut *cut)
{
    for (const Op *op = cut->micro->first; op; op = op->next)
        if (part_of(cut, op) < 0)
            set_part(cut, op, cut->chunks);
    for (int part = cut->chunks; part < N_ACTION_KINDS * cut->chunks; part++) {
        const Loops *loops = loops_of_part(cut, part);
        for (int k = 0; k < loops->count; k++) {
            set_part(cut, loops->at[k], part);
            for (int i = 0; i < loops->at[k]->attrs.carried; i++)
                set_part(cut, arg(loops->at[k], i)->def, part);
        }
    }
}

/* All else is backward, where its operands are: in the first part that has them.  Returns a loop that would then be in
 * a later part than its own; NULL: there is none. */
static const Op *assign_parts(Cut *cut)
{
    assign_forward(cut);
    assign_loops(cut);
    for (const Op *op = cut->micro->first; op; op = op->next) {
        const int own = part_of(cut, op);
        int latest = -1; /* of its operands */
        if (own < cut->chunks)
            continue;
        for (int i = 0; i < op->args.count; i++)
            if (arg(op, i)->def && part_of(cut, arg(op, i)->def) > latest)
                latest = part_of(cut, arg(op, i)->def);
        if (runs_in_stages(op) && latest > own)
            return op;
        if (is_send(op) && latest >= own && latest % cut->chunks < cut->chunks - 1)
            latest++; /* where it arrives */
        set_part(cut, op, latest > own ? latest : own);
    }
    return NULL;
}

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
        if (part_of(cut, op) != part && index_of(&op->args, value) >= 0)
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

static Name part_name(const Cut *cut, int part)
{
    static const char *const names[] = { "forward", "backward", "weights" };
    const int at = part % cut->chunks, chunk = part < cut->chunks ? at : cut->chunks - 1 - at;
    const char *name = names[part / cut->chunks];
    return cut->chunks == 1 ? intern_format(cut->m, "%s.%s", cut->micro->name, name)
                            : intern_format(cut->m, "%s.%s.%d", cut->micro->name, name, chunk);
}

/* Moves the ops of one part into a function, and calls it. */
static void cut_part(Cut *cut, int part, Map *instead)
{
    Module *m = cut->m;
    const Loops *loops = loops_of_part(cut, part);
    Part to = { .func = add_func(m, part_name(cut, part), PLAIN), .inside.arena = &m->arena };
    for (const Op *op = cut->micro->first; op; op = next_op(cut, op)) {
        if (part_of(cut, op) != part || info(op)->family == LEAF)
            continue;
        Builder b = { .module = m, .func = to.func, .loc = op->loc, .path = op->path, .where = op->where };
        Value **own = NEW_ARRAY(&m->arena, Value *, op->args.count + 1);
        for (int i = 0; i < op->args.count; i++)
            own[i] = inside(cut, &to, &b, arg(op, i));
        const Op *clone = clone_op(&b, op, own);
        for (int i = 0; i < op->results.count; i++)
            map_put(&to.inside, op->results.at[i], clone->results.at[i]);
    }
    for (int k = 0; k < loops->count; k++)
        for (int i = 0; i < loops->at[k]->attrs.carried; i++) {
            give_back(cut, &to, arg(loops->at[k], i));
            give_back(cut, &to, loops->at[k]->results.at[i]);
        }
    for (const Op *op = cut->micro->first; op; op = next_op(cut, op))
        for (int i = 0; i < op->results.count && part_of(cut, op) == part; i++)
            if (info(op)->family != LEAF && (is_send(op) || is_read_outside(cut, op->results.at[i], part)))
                give_back(cut, &to, op->results.at[i]);
    Builder b = builder_at(m, cut->micro, NULL);
    b.path = loops->at[0]->path, b.where = loops->at[0]->where, b.loc = loops->at[0]->loc;
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
    for (int part = 0; part < N_ACTION_KINDS * cut->chunks; part++)
        if (loops_of_part(cut, part)->count)
            cut_part(cut, part, &instead);
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
    const int part = part_of(cut, op);
    const bool first_of_kind = part % cut->chunks == 0;
    if (part >= WEIGHT_ACTION * cut->chunks || first_of_kind || !is_send(op) || !arg(op, 0)->def)
        return false;
    const Loops *before = loops_of_part(cut, part - 1);
    return part_of(cut, arg(op, 0)->def) < part &&
           same_stages(arg(op, 0)->type.on, end_stage(cut->m, before->at[before->count - 1], true)) &&
           same_stages(result(op)->type.on, end_stage(cut->m, loops_of_part(cut, part)->at[0], false));
}

/* Other messages between stages would be sent where the schedule does not expect them. */
static const Op *stray_message(const Cut *cut)
{
    const Axes axis = 1u << pipeline_axis(cut->m);
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
    const Op *nested = nested_loop(cut->m, cut->micro);
    if (nested)
        return refuse_cut(cut->m, nested, "the stages of a pipeline are in a repeat that is inside another one");
    if (loop && !find_loops(cut))
        return refuse_cut(cut->m, loop,
                          "a micro-batch does not pass the stages of the pipeline once forward and once backward");
    return loop != NULL;
}

/* The gradients of weights, and then all else. */
static bool divide(Cut *cut, bool splits_backward)
{
    for (int chunk = 0; chunk < cut->chunks; chunk++) {
        Loops *backward = &cut->loops[BACKWARD_ACTION][chunk];
        for (int i = 0; i < backward->count; i++) {
            Op *weights = splits_backward ? divide_backward(cut->m, cut->micro, &backward->at[i]) : NULL;
            if (weights)
                add_loop(&cut->loops[WEIGHT_ACTION][chunk], weights);
            own_carried(cut, cut->loops[FORWARD_ACTION][chunk].at[i]);
            own_carried(cut, backward->at[i]);
        }
    }
    const Op *misplaced = assign_parts(cut), *stray = misplaced ? NULL : stray_message(cut);
    if (misplaced)
        return refuse_cut(cut->m, misplaced, "this part of the pipeline needs what a later one computes");
    return !stray || refuse_cut(cut->m, stray,
                                "a stage of the pipeline needs this of another one, not only what the repeat carries");
}

/* Do the loops go through the ranks as the stages of the schedule do? */
static bool check_placement(const Cut *cut, const PipelineSchedule *s)
{
    for (int chunk = 0; chunk < cut->chunks; chunk++)
        if (runs_up(cut->loops[FORWARD_ACTION][chunk].at[0]) != (s->placement != VEE || chunk == 0))
            return refuse_cut(cut->m, cut->loops[FORWARD_ACTION][chunk].at[0],
                              "this goes through the ranks in another order than the schedule");
    return true;
}

void pass_pipeline(Module *m);
void pass_pipeline(Module *m)
{
    if (m->train.stages <= STAGES_NAIVE)
        return;
    inline_calls(m);
    Op *loop = micro_loop(m);
    Cut cut = { .m = m, .micro = loop ? find_func(m, loop->attrs.callee) : NULL, .part.arena = &m->arena };
    if ((loop && loop->attrs.stages) || !can_cut(&cut, loop))
        return;
    share_equal(cut.micro); /* now, not when carried values have their memory */
    const PipelineSchedule *schedule = schedule_of_loop(m, loop, m->train.stages, cut.chunks);
    if (!schedule || !check_placement(&cut, schedule) || !divide(&cut, schedule->splits_backward))
        return;
    replace_ops(&cut);
    loop->attrs.stages = m->train.stages;
}
