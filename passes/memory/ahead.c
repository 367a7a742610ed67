/* ahead.c -- reads offloaded state that a step needs first at the end of the step before: a table of words, whose
 * transfer nothing hides at the beginning of a step with `just_in_time`, is then read beside a backward pass.
 *
 *   func step @step(%m, ...) {                           func step @step(%m, ..., %m.ahead) {
 *     %m1, ... = loop %m, ... {callee=k.copy}              %m1, ... = loop %m, ..., %m.ahead {callee=k.copy}
 *     ...                                                  ...
 *     %dx = loop ... {callee=h.bwd}                 =>     %1 = move %m1 {started}
 *     return %m1, ...                                      %dx = loop ... {callee=h.bwd}
 *   }                                                      %2 = wait %1
 *   func @k.copy(%m, ...) {                                return %m1, ..., %2
 *     %1 = move %m                                       }
 *     ...                                                func begin @begin(%m, %m.ahead) {
 *   }                                                      %1 = move %m
 *                                                          return %m, %1
 *                                                        }
 *
 * It is one of the values that a step leaves to the next one.  The trainer calls @begin before a step that has none
 * before it, or where something else has changed the state or used the memory since.
 *
 * A read begins as early as a step without it had as much memory in use as the step has with it: so the arena does not
 * grow.  What does not fit behind the last function that is called, or before it, is read where it was.
 */
#include "join.h"
#include "memory.h"
#include "storage.h"
#include "tier.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *step, *finish;
    Map caller;
    Map known; /* function -> the most bytes in use at a time, before anything was read ahead */
} Ahead;

/* A stack that a loop of the step moves to the device, slice by slice, and updates. */
typedef struct {
    Op *loop;
    Func *body;
    int at;       /* the operand */
    Op *move;     /* in the body */
    Value *after; /* the new stack, in the same tier */
    Value *state; /* the parameter of the step that it is, or is a view of */
} Stack;

/* --- Which -------------------------------------------------------------------------------------- */

/* What new state is made as, before views of it. */
static Value *made_as(Value *after)
{
    while (after->def && info(after->def)->family == VIEW)
        after = arg(after->def, 0);
    return after;
}

static Value *new_of(const Func *step, const Value *old, const Op *loop)
{
    const StepState state = state_of(step);
    for (int i = 0; i < state.count; i++)
        if (state.before[i] == old && made_as(state.after[i])->def == loop)
            return made_as(state.after[i]);
    return NULL;
}

/* The only op that reads the parameter, but for the one that puts something in its place. */
static Op *only_fetch(const Func *body, const Value *param)
{
    Op *fetch = NULL;
    for (Op *op = body->first; op; op = op->next) {
        if (index_of(&op->args, param) < 0 || replaces(op, param))
            continue;
        if (fetch || !(info(op)->traits & CARRIES) || op->attrs.tier)
            return NULL;
        fetch = op;
    }
    return index_of(&body->results, param) < 0 ? fetch : NULL;
}

static bool find_stack(const Ahead *a, Op *loop, int at, Stack *stack)
{
    Value *given = arg(loop, at);
    *stack = (Stack){ .loop = loop, .body = body_of(a->m, &a->caller, loop), .at = at };
    if (!stack->body || at < loop->attrs.carried || !given->type.tier || given->type.on.at ||
        find_dim(&given->type, loop->attrs.dims.dim[0].name) != 0)
        return false;
    stack->state = (Value *)shown_by(given);
    stack->after = stack->state->def ? NULL : new_of(a->step, stack->state, loop);
    stack->move = only_fetch(stack->body, stack->body->params.at[at]);
    return stack->move && stack->after && type_equal(&stack->after->type, &given->type);
}

/* --- Where it is read --------------------------------------------------------------------------- */

/* Will the result take the memory of an operand? */
static bool takes_operand(const Module *m, Map *lifetimes, const Op *op, int i, const Map *last, int number)
{
    for (int j = 0; j < op->args.count; j++)
        if (arg(op, j)->def && later(last, arg(op, j), -1) == number && may_overwrite(m, lifetimes, op, i, j))
            return true;
    return false;
}

static int count_ops(const Func *f)
{
    int count = 0;
    for (const Op *op = f->first; op; op = op->next)
        count++;
    return count;
}

static int64_t most_in_use(Ahead *a, const Func *f);

/* Values from their op to their last reader, and what the step before has left up to its last reader: the changes at
 * each op.  What a called function returns is its caller's. */
static void note_lives(Ahead *a, const Func *f, Arena *scratch, int64_t change[], int count)
{
    const Map last = last_uses(scratch, f);
    Map lifetimes = { .arena = scratch };
    int number = 0;
    for (int i = 0; i < f->params.count; i++) {
        const Value *param = f->params.at[i];
        const int64_t bytes = param->port.kind == PORT_LEFT ? local_bytes(a->m, &param->type) : 0;
        change[0] += bytes;
        change[later(&last, param, 0) + 1] -= bytes;
    }
    for (const Op *op = f->first; op; op = op->next, number++)
        for (int i = 0; i < op->results.count && info(op)->family != VIEW; i++) {
            const Value *value = op->results.at[i];
            const bool is_here = !value->type.tier && (f == a->step || index_of(&f->results, value) < 0);
            const int end = later(&last, value, number);
            const int64_t bytes = is_here ? local_bytes(a->m, &value->type) : 0;
            change[number + takes_operand(a->m, &lifetimes, op, i, &last, number)] += bytes;
            change[(end < count ? end : count) + 1] -= bytes;
        }
}

/* The bytes in use at each op, with the most that a function needs which it calls. */
static int64_t *bytes_in_use(Ahead *a, const Func *f, Arena *scratch, int count)
{
    int64_t *bytes = NEW_ARRAY(scratch, int64_t, count + 2), living = 0;
    int number = 0;
    note_lives(a, f, scratch, bytes, count);
    for (const Op *op = f->first; op; op = op->next, number++) {
        living += bytes[number];
        bytes[number] = living + (function_called_by(a->m, op) ? most_in_use(a, find_func(a->m, op->attrs.callee)) : 0);
    }
    return bytes;
}

static int64_t most_in_use(Ahead *a, const Func *f)
{
    int64_t *most = map_get(&a->known, f);
    if (most)
        return *most;
    Arena scratch = { 0 };
    const int count = count_ops(f);
    const int64_t *bytes = bytes_in_use(a, f, &scratch, count);
    most = NEW(&a->m->arena, int64_t);
    for (int i = 0; i < count; i++)
        *most = bytes[i] > *most ? bytes[i] : *most;
    map_put(&a->known, f, most);
    arena_free(&scratch);
    return *most;
}

/* May the step have so many bytes more in use up to the op that reads them? */
static bool has_room_up_to(Ahead *a, const Op *reader, const int64_t *bytes, int64_t more)
{
    const int64_t most = most_in_use(a, a->step);
    const Op *op = a->step->first;
    int number = 0;
    while (op != reader && bytes[number] + more <= most)
        op = op->next, number++;
    return bytes[number] + more <= most;
}

/* The op before which a read of so many bytes starts: directly behind a function that is called, since the pass
 * `overlap` would put it there, and before another one.  NULL: there is no room. */
static Op *place_for(Ahead *a, const Stack *stack, int64_t more)
{
    Arena scratch = { 0 };
    int number = count_ops(a->step);
    const int64_t most = most_in_use(a, a->step), *bytes = bytes_in_use(a, a->step, &scratch, number);
    const bool has_room = has_room_up_to(a, stack->loop, bytes, more);
    Op *place = NULL;
    bool hides = false;
    for (Op *op = a->step->last; has_room && op != stack->loop && bytes[--number] + more <= most; op = op->prev) {
        hides |= function_called_by(a->m, op) != NULL;
        if (hides && function_called_by(a->m, op->prev))
            place = op;
    }
    arena_free(&scratch);
    return place;
}

/* --- The programs ------------------------------------------------------------------------------- */

static void read_in_body(const Stack *stack, Module *m, Value *ahead)
{
    Value *arrived = result(stack->move),
          *slice = add_param(m, stack->body, free_name(m, stack->body, ahead->name), arrived->type);
    push_value(&m->arena, &stack->loop->args, ahead);
    replace_uses(stack->body, arrived, slice);
    remove_op(stack->body, stack->move);
}

/* What the function takes as `ahead`, it leaves as it is. */
static void pass_through(Module *m, Func *f, const Value *ahead)
{
    Value *param = add_param(m, f, ahead->name, ahead->type);
    param->port = ahead->port;
    add_result(m, f, param, param->port);
}

/* The same view of another parameter. */
static Value *seen_as(Module *m, Func *f, const Value *seen, Value *param)
{
    if (!seen->def)
        return param;
    Value *operand = seen_as(m, f, arg(seen->def, 0), param);
    Builder b = { m, f, NULL, seen->def->loc, seen->def->path, seen->def->where };
    return build(&b, seen->def->kind, seen->def->attrs, 1, &operand)->results.at[0];
}

static void read_at_begin(const Ahead *a, const Stack *stack, const Value *ahead)
{
    Module *m = a->m;
    Func *begin = func_with_role(m, BEGIN);
    if (!begin)
        begin = add_func(m, intern_text(m, "begin"), BEGIN);
    pass_through(m, begin, stack->state);
    Value *param = add_param(m, begin, ahead->name, ahead->type);
    Value *seen = seen_as(m, begin, arg(stack->loop, stack->at), begin->params.at[begin->params.count - 2]);
    Builder b = { m, begin, NULL, stack->move->loc, stack->move->path, stack->move->where };
    param->port = ahead->port;
    add_result(m, begin, build_op(&b, OP_move, NO_ATTRS, 1, &seen), param->port);
}

static void read_in_step(const Ahead *a, const Stack *stack, Op *place, const Value *ahead)
{
    Builder b = { a->m, a->step, place, stack->move->loc, stack->move->path, stack->move->where };
    Value *after = stack->after, *started = build_op(&b, OP_move, NO_ATTRS, 1, &after);
    started->def->attrs.started = started->type.in_flight = true;
    b.before = NULL;
    add_result(a->m, a->step, build_op(&b, OP_wait, NO_ATTRS, 1, &started), ahead->port);
}

static void read_ahead(Ahead *a, const Stack *stack)
{
    Module *m = a->m;
    Type type = arg(stack->loop, stack->at)->type;
    type.tier = ON_DEVICE;
    Op *place = place_for(a, stack, local_bytes(m, &type));
    if (!place)
        return;
    Value *ahead = add_param(m, a->step, free_name(m, a->step, intern_format(m, "%s.ahead", stack->state->name)), type);
    ahead->port = (Port){ .kind = PORT_LEFT, .of = ahead->name };
    read_in_step(a, stack, place, ahead);
    pass_through(m, a->finish, ahead);
    read_at_begin(a, stack, ahead);
    read_in_body(stack, m, ahead);
}

void pass_ahead(Module *m);
void pass_ahead(Module *m)
{
    Ahead a = { m, func_with_role(m, STEP), func_with_role(m, FINISH), note_callers(m), { .arena = &m->arena } };
    Stack stack;
    if (!a.step || !a.finish || func_with_role(m, BEGIN))
        return;
    most_in_use(&a, a.step); /* as it is */
    for (Op *op = a.step->first; op; op = op->next)
        for (int i = 0, count = op->args.count; function_called_by(m, op) && i < count; i++)
            if (find_stack(&a, op, i, &stack))
                read_ahead(&a, &stack);
}
