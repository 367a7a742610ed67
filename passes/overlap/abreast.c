/* abreast.c -- with `train.abreast = 2`, two micro-batches are computed in one body, so that the messages of one are
 * under way while the other computes.  `overlap` starts and waits.
 *
 *   func @grad.micro(%sum, %x, %w) {                     func @grad.micro(%sum, %xs: [micro.lane:2, ...], %w) {
 *     %1 = all_gather %x                                   %x = slice %xs {index=0}
 *     %y, %s = loop %1, %w {callee=h.fwd}                  %x.b = slice %xs {index=1}
 *     %new = loop %y, %s, %w, %sum {callee=h.bwd}          %1 = all_gather %x
 *     return %new                                    =>    %1.b = all_gather %x.b
 *   }                                                      %y, %y.b, %s, %s.b = loop %1, %1.b, %w {callee=h.fwd}
 *   %g = loop %0, %x, %w {dims=[micro:8], ...}             %new.b = loop %y, %y.b, %s, %s.b, %w, %sum {callee=h.bwd}
 *                                                          return %new.b
 *                                                        }
 *                                                        %g = loop %0, (split %x), %w {dims=[micro.turn:4], ...}
 *
 * Each micro-batch is a lane.  What all lanes compute from the same operands, as a gather of weights, is there once.
 * A function is written lane by lane up to each message: what comes before the next one of a lane is behind what
 * the others do before theirs.  Calls and loops become one, whose function has all lanes.
 *
 * Sums go from lane to lane, in the order of micro-batches: so results have the same bits.  A sum that a loop carries
 * through its iterations, the gradient of a weight that all layers share, needs the whole loop of the lane before: such
 * loops stay one for each lane.
 */
#include "overlap.h"
#include "simplify/cleanup.h"
#include "split_loop.h"
#include "storage.h"
#include "uses.h"

/* A function, and the one that gets the ops of all its lanes. */
typedef struct {
    Module *m;
    Dim lane;        /* its size: how many there are */
    int64_t buckets; /* of the whole program, before */
    const Func *from;
    Func *to;
    int64_t carried;          /* how many of the results of `from` a loop carries */
    int *next;                /* of a parameter of `from`: its result that the next lane gets there; -1: none */
    Map own[MAX_ABREAST];     /* of a value of `from`: that of a lane in `to` */
    Map is_done[MAX_ABREAST]; /* of an op of `from` */
} Lanes;

static int lane_count(const Lanes *l) { return (int)l->lane.size; }

static Lanes lanes_of(Module *m, const Lanes *around, const Func *from)
{
    Lanes l = { .m = m, .lane = around->lane, .buckets = around->buckets, .from = from };
    l.to = add_func(m, free_func_name(m, from->name), from->role);
    l.to->forward = from->forward;
    l.next = NEW_ARRAY(&m->arena, int, from->params.count + 1);
    for (int i = 0; i < from->params.count; i++)
        l.next[i] = -1;
    for (int lane = 0; lane < lane_count(&l); lane++)
        l.own[lane].arena = l.is_done[lane].arena = &m->arena;
    return l;
}

/* The function with all lanes takes the place of the one without. */
static Name finish_lanes(Lanes *l, Func *from)
{
    const Name name = from->name;
    rename_func(l->m, from, free_func_name(l->m, intern_format(l->m, "%s.alone", name)));
    rename_func(l->m, l->to, name);
    return name;
}

/* --- Values -------------------------------------------------------------------------------------------- */

/* "h.x" of the first lane, "h.x.b" of the second. */
static Name lane_name(Module *m, Name name, int lane)
{
    return lane ? intern_format(m, "%s.%c", name, 'a' + lane) : name;
}

static Port lane_port(Module *m, Port port, int lane)
{
    if (port.kind == PORT_FORWARD)
        port.of = lane_name(m, port.of, lane);
    return port;
}

/* NULL: the lane has not come to it. */
static Value *value_of(const Lanes *l, int lane, const Value *value)
{
    Value *own = map_get(&l->own[lane], value);
    if (own || value->def || !lane)
        return own;
    const int next = l->next[index_of(&l->from->params, value)];
    return next < 0 ? NULL : value_of(l, lane - 1, l->from->results.at[next]);
}

static bool is_alike(const Lanes *l, const Value *value)
{
    const Value *first = value_of(l, 0, value);
    bool alike = first;
    for (int lane = 1; lane < lane_count(l) && alike; lane++)
        alike = value_of(l, lane, value) == first;
    return alike;
}

static bool has_all(const Lanes *l, int lane, const Op *op)
{
    bool all = true;
    for (int i = 0; i < op->args.count && all; i++)
        all = value_of(l, lane, arg(op, i));
    return all;
}

static void set_value(Lanes *l, int lane, const Value *value, Value *own) { map_put(&l->own[lane], value, own); }

static Value *add_lane_param(Lanes *l, int lane, const Value *param)
{
    Value *own = add_param(l->m, l->to, lane_name(l->m, param->name, lane), param->type);
    own->port = lane_port(l->m, param->port, lane);
    set_value(l, lane, param, own);
    return own;
}

/* A parameter for the slices of all lanes, and what each lane takes of it. */
static void add_sliced_param(Lanes *l, const Value *param, const Op *call)
{
    Builder b = { .module = l->m, .func = l->to, .loc = call->loc, .path = call->path, .where = call->where };
    Value *all = add_lane_param(l, 0, param);
    all->type = with_dim_first(param->type, l->lane);
    for (int lane = 0; lane < lane_count(l); lane++) {
        const Attrs of_lane = { .dim = l->lane.name, .index = lane };
        set_value(l, lane, param, BUILD(&b, OP_slice, of_lane, all));
    }
}

/* --- An op of one lane --------------------------------------------------------------------------------- */

static void copy_op(Lanes *l, int lane, const Op *op)
{
    Builder b = { .module = l->m, .func = l->to };
    Value **args = NEW_ARRAY(&l->m->arena, Value *, op->args.count + 1);
    for (int i = 0; i < op->args.count; i++)
        args[i] = value_of(l, lane, arg(op, i));
    Op *own = clone_op(&b, op, args);
    if (lane && op->attrs.callee)
        own->attrs.callee = copy_func(l->m, find_func(l->m, op->attrs.callee), lane_name(l->m, "", lane))->name;
    if (own->attrs.bucket)
        own->attrs.bucket += lane * l->buckets;
    for (int i = 0; i < op->results.count; i++) {
        own->results.at[i]->name = lane_name(l->m, op->results.at[i]->name, lane);
        set_value(l, lane, op->results.at[i], own->results.at[i]);
    }
}

/* Each lane has its own of what a loop carries, also where the first iteration begins with the same. */
static bool is_carried_on(const Lanes *l, const Op *op)
{
    bool any = false;
    for (int i = 0; i < l->carried && !any; i++)
        any = l->from->results.at[i]->def == op;
    return any;
}

/* A split loop receives what it carries into the memory of its operands. */
static bool is_received(const Lanes *l, const Op *op)
{
    bool any = false;
    for (const Op *loop = op->next; loop && !any; loop = loop->next)
        for (int i = 0; i < loop->attrs.carried && is_split_loop(loop); i++)
            any |= arg(loop, i)->def == op;
    return any;
}

/* What the first lane has computed from the same operands is there. */
static void write_op(Lanes *l, int lane, const Op *op)
{
    bool alike = lane > 0 && !is_carried_on(l, op) && !is_received(l, op);
    for (int i = 0; i < op->args.count && alike; i++)
        alike = value_of(l, lane, arg(op, i)) == value_of(l, 0, arg(op, i));
    map_put(&l->is_done[lane], op, l);
    if (!alike)
        copy_op(l, lane, op);
    for (int i = 0; i < op->results.count && alike; i++)
        set_value(l, lane, op->results.at[i], value_of(l, 0, op->results.at[i]));
}

/* Those of a lane that have their operands. */
static void write_ready(Lanes *l, int lane, const Op *end)
{
    for (const Op *op = l->from->first; op != end; op = op->next)
        if (!map_get(&l->is_done[lane], op) && has_all(l, lane, op))
            write_op(l, lane, op);
}

/* --- A call or loop of all lanes ----------------------------------------------------------------------- */

static bool calls_lanes(const Module *m, const Op *op)
{
    const Func *callee = called_by(m, op);
    return callee && callee->role == PLAIN;
}

/* The result of the call that the next lane gets in the place of this operand; -1: none. */
static int result_going_on(const Lanes *l, const Op *call, int i)
{
    const Value *given = arg(call, i);
    const int at = given->def ? -1 : l->next[index_of(&l->from->params, given)];
    return at < 0 ? -1 : index_of(&call->results, l->from->results.at[at]);
}

/* A slice of it is what an iteration of the lane before has made of that slice, and nothing else reads either. */
static bool goes_on_slice_by_slice(const Lanes *l, const Op *call, int i)
{
    const int at = result_going_on(l, call, i);
    const bool is_loop = call->attrs.dims.count > 0;
    if (at < 0 || !value_of(l, 0, arg(call, i)))
        return false;
    return uses_in(l->from, arg(call, i)) == 1 && uses_in(l->from, call->results.at[at]) == 1 &&
           (!is_loop || (i >= call->attrs.carried && at >= call->attrs.carried &&
                         find_dim(&arg(call, i)->type, call->attrs.dims.dim[0].name) == 0));
}

static bool has_lanes(const Lanes *l, const Value *value)
{
    bool all = true;
    for (int lane = 0; lane < lane_count(l); lane++)
        all = all && value_of(l, lane, value);
    return all;
}

static bool can_be_one(const Lanes *l, const Op *call)
{
    bool can = true;
    const Func *callee = find_func(l->m, call->attrs.callee);
    for (int i = 0; i < call->attrs.carried && can; i++) /* else all lanes would return one operand */
        can = callee->results.at[i]->def || index_of(&callee->params, callee->results.at[i]) < call->attrs.carried;
    for (int i = 0; i < call->args.count && can; i++)
        can = has_lanes(l, arg(call, i)) || goes_on_slice_by_slice(l, call, i);
    for (int lane = 0; lane < lane_count(l); lane++)
        can = can && !map_get(&l->is_done[lane], call);
    return can;
}

/* The parameter of which each lane has its slice; NULL: it is something else. */
static Value *all_slices(const Lanes *l, const Value *value)
{
    const Op *slice = value->def ? NULL : value_of(l, 0, value)->def;
    return slice && slice->attrs.dim == l->lane.name ? arg(slice, 0) : NULL;
}

/* Parameters of the function with all lanes, and the operands for them.  A part of a micro-batch that a schedule runs
 * gets the slices of all lanes: between such parts there is no other op. */
static void add_operands(const Lanes *l, Lanes *inner, const Op *call, Values *args)
{
    for (int i = 0; i < call->args.count; i++) {
        const Value *given = arg(call, i), *param = inner->from->params.at[i];
        Value *slices = call->attrs.dims.count ? NULL : all_slices(l, given);
        if (slices) {
            add_sliced_param(inner, param, call);
            push_value(&l->m->arena, args, slices);
            continue;
        }
        const bool is_carried = i < call->attrs.carried, goes_on = !has_lanes(l, given);
        const bool is_one = goes_on || (!is_carried && is_alike(l, given));
        inner->next[i] = goes_on ? result_going_on(l, call, i) : -1;
        for (int lane = 0; lane < (is_one ? 1 : lane_count(l)); lane++) {
            add_lane_param(inner, lane, param);
            push_value(&l->m->arena, args, value_of(l, lane, given));
        }
        for (int lane = 1; lane < lane_count(l) && is_one && !goes_on; lane++)
            set_value(inner, lane, param, value_of(inner, 0, param));
    }
}

static bool goes_on(const Lanes *inner, int result)
{
    int i = 0;
    while (i < inner->from->params.count && inner->next[i] != result)
        i++;
    return i < inner->from->params.count;
}

/* The lanes that have a result of their own, from the first one given to the last one. */
static int first_lane(const Lanes *inner, int result) { return goes_on(inner, result) ? lane_count(inner) - 1 : 0; }

static int last_lane(const Lanes *inner, int result, bool is_carried)
{
    const bool is_one = !is_carried && is_alike(inner, inner->from->results.at[result]);
    return is_one ? first_lane(inner, result) : lane_count(inner) - 1;
}

static void add_results(Lanes *inner)
{
    for (int i = 0; i < inner->from->results.count; i++)
        for (int lane = first_lane(inner, i); lane <= last_lane(inner, i, i < inner->carried); lane++)
            add_result(inner->m, inner->to, value_of(inner, lane, inner->from->results.at[i]),
                       result_port(inner->from, i));
}

static void take_results(Lanes *l, const Lanes *inner, const Op *call, const Op *one)
{
    int at = 0;
    for (int i = 0; i < call->results.count; i++) {
        const int last = last_lane(inner, i, i < call->attrs.carried);
        for (int lane = first_lane(inner, i); lane < lane_count(l); lane++) {
            Value *own = one->results.at[at];
            if (lane <= last)
                own->name = lane_name(l->m, call->results.at[i]->name, lane);
            set_value(l, lane, call->results.at[i], own);
            at += lane < last;
        }
        at++;
    }
}

static void write_lanes(Lanes *l);

static void write_one(Lanes *l, const Op *call)
{
    Func *callee = find_func(l->m, call->attrs.callee);
    Lanes inner = lanes_of(l->m, l, callee);
    inner.carried = call->attrs.carried;
    Values args = { 0 };
    add_operands(l, &inner, call, &args);
    write_lanes(&inner);
    add_results(&inner);
    Builder b = { .module = l->m, .func = l->to, .loc = call->loc, .path = call->path, .where = call->where };
    Attrs attrs = call->attrs;
    attrs.callee = finish_lanes(&inner, callee);
    attrs.carried *= lane_count(l);
    take_results(l, &inner, call, build(&b, call->kind, attrs, args.count, args.at));
    for (int lane = 0; lane < lane_count(l); lane++)
        map_put(&l->is_done[lane], call, l);
}

/* --- A function ---------------------------------------------------------------------------------------- */

/* Behind the next message, or before the next call. */
static const Op *end_of_segment(const Module *m, const Op *op)
{
    while (op && !calls_lanes(m, op) && !(info(op)->traits & SENDS))
        op = op->next;
    return op && info(op)->traits & SENDS ? after_message(op) : op;
}

static void write_lanes(Lanes *l)
{
    for (const Op *op = l->from->first, *end; op; op = end) {
        const bool is_call = calls_lanes(l->m, op);
        end = is_call ? op->next : end_of_segment(l->m, op);
        if (is_call && can_be_one(l, op))
            write_one(l, op);
        for (int lane = 0; lane < lane_count(l); lane++)
            write_ready(l, lane, end);
    }
    for (int lane = 0; lane < lane_count(l); lane++)
        write_ready(l, lane, NULL);
}

/* --- The step ------------------------------------------------------------------------------------------ */

/* The loop whose iterations are to be abreast; NULL: there is none. */
static Op *loop_of_micros(const Func *step)
{
    Op *op = step->first;
    while (op && !op->attrs.abreast)
        op = op->next;
    return op;
}

static bool is_sliced(const Op *loop, int i)
{
    return i >= loop->attrs.carried && is_passed_in_slices(loop, arg(loop, i));
}

/* Each lane has its own slice of an iteration's operands; its sums are those of the lane before. */
static void add_params(Lanes *l, const Op *loop)
{
    for (int i = 0; i < l->from->params.count; i++) {
        const Value *param = l->from->params.at[i];
        l->next[i] = i < loop->attrs.carried ? i : -1;
        if (is_sliced(loop, i)) {
            add_sliced_param(l, param, loop);
            continue;
        }
        Value *own = add_lane_param(l, 0, param);
        for (int lane = 1; lane < lane_count(l) && i >= loop->attrs.carried; lane++)
            set_value(l, lane, param, own);
    }
}

/* The loop runs so many iterations less, and gets slices for all lanes. */
static void use_lanes(Module *m, Func *step, Op *loop, const Dim *lane)
{
    Dim *micro = &loop->attrs.dims.dim[0], turn = *micro;
    turn.name = intern_format(m, "%s.turn", micro->name);
    turn.size = turn.padded = micro->size / lane->size;
    const Attrs split = { .dim = micro->name, .dims = { .count = 2, .dim = { turn, *lane } } };
    Builder b = builder_at(m, step, loop);
    for (int i = 0; i < loop->args.count; i++)
        if (is_sliced(loop, i))
            loop->args.at[i] = BUILD(&b, OP_split, split, arg(loop, i));
    *micro = turn;
}

static void run_abreast(Module *m, Func *step, Op *loop)
{
    const int lanes = (int)loop->attrs.abreast;
    loop->attrs.abreast = 0;
    const Name micro = loop->attrs.dims.dim[0].name;
    const Dim lane = { .name = intern_format(m, "%s.lane", micro), .size = lanes, .padded = lanes };
    const Lanes all = { .lane = lane, .buckets = last_bucket(m) };
    Func *body = find_func(m, loop->attrs.callee);
    Lanes l = lanes_of(m, &all, body);
    add_params(&l, loop);
    write_lanes(&l);
    for (int i = 0; i < body->results.count; i++)
        add_result(m, l.to, value_of(&l, lanes - 1, body->results.at[i]), result_port(body, i));
    drop_dead(l.to);
    finish_lanes(&l, body);
    use_lanes(m, step, loop, &lane);
    drop_unreached(m);
}

void pass_abreast(Module *m);
void pass_abreast(Module *m)
{
    Func *step = func_with_role(m, STEP);
    Op *loop = step ? loop_of_micros(step) : NULL;
    if (loop)
        run_abreast(m, step, loop);
}
