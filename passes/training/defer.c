/* defer.c -- with `offload optimizer to disk just_in_time`, the update of a step runs at the beginning of the next one:
 * no layer can be updated before the norm of all gradients is known, but each may wait until its forward reads it.
 *
 *   func step @step(%tokens, %lr, %w, %m) {        func step @step(%tokens, %lr, %pending, %w, %m, %left, %left.2) {
 *     %loss, %g = call @grad(%tokens, %w)            %w1, %m1 = update of %w, %m by %left, %left.2
 *     %norm = norm of %g                       =>    %w2 = where(%pending > 0, %w1, %w), likewise %m2
 *     %w1, %m1 = update of %w, %m by %g, %norm       %loss, %g = call @grad(%tokens, %w2)
 *     return %loss, %norm, %w1, %m1                  %norm = norm of %g
 *   }                                                return %loss, %norm, %w2, %m2, %g, %norm
 *                                                  }
 *                                                  func finish @finish(%w, %m, %left, %left.2) {
 *                                                    %w1, %m1 = update of %w, %m by %left, %left.2
 *                                                    return %w1, %m1, %left, %left.2
 *                                                  }
 *
 * What a step leaves is what its update reads of the rest: gradients, and numbers such as their norm and the rate.  The
 * trainer calls @finish before anything but the next step reads the state, and then says to that step that no update
 * is pending.  The pass `join` puts the updates of the layers into the loop of their forward.
 */
#include "map.h"
#include "simplify/cleanup.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *f;
    Map now;      /* ops that the loss, the norm and the numbers of the trainer need: they do not wait */
    Map later;    /* value -> what the update reads in its place */
    Builder b;    /* before the first of them */
    Values lefts; /* one value for each parameter with the port LEFT */
} Defer;

static bool is_deferred(const StepState *state, int i)
{
    const PortKind kind = state->before[i]->port.kind;
    return (kind == PORT_PARAM || kind == PORT_OPTIMIZER) && state->after[i] != state->before[i];
}

static void find_what_does_not_wait(Defer *d)
{
    const StepState state = state_of(d->f);
    const int first = d->f->results.count - state.count;
    for (int i = 0; i < d->f->results.count; i++) {
        const Op *op = d->f->results.at[i]->def;
        if (op && (i < first || !is_deferred(&state, i - first)))
            note_with_operands(&d->now, op);
    }
}

/* --- What is left ------------------------------------------------------------------------------------- */

/* Is it no larger before this op, which costs next to nothing? */
static bool is_made_again(const Op *op)
{
    const bool widens =
        info(op)->traits & CASTS && dtype_bytes(arg(op, 0)->type.dtype) <= dtype_bytes(result(op)->type.dtype);
    return widens || info(op)->family == LEAF || info(op)->family == VIEW;
}

static Value *left_by_last_step(Defer *d, Value *value)
{
    Module *m = d->m;
    Value *left = add_param(m, d->f, free_name(m, d->f, intern_text(m, "left")), value->type);
    left->port = (Port){ .kind = PORT_LEFT, .of = left->name };
    push_value(&m->arena, &d->lefts, value);
    return left;
}

static Value *read_later(Defer *d, Value *value);

static Value *made_again(Defer *d, const Value *value)
{
    const Op *op = value->def;
    Values operands = { 0 };
    for (int i = 0; i < op->args.count; i++)
        push_value(&d->m->arena, &operands, read_later(d, arg(op, i)));
    d->b.loc = op->loc, d->b.path = op->path, d->b.where = op->where;
    return build(&d->b, op->kind, op->attrs, operands.count, operands.at)->results.at[index_of(&op->results, value)];
}

/* What the update reads where it read `value`: the weights and the state of the optimizer are still the same. */
static Value *read_later(Defer *d, Value *value)
{
    const PortKind kind = value->port.kind;
    const bool waits = value->def ? !map_get(&d->now, value->def) : kind == PORT_PARAM || kind == PORT_OPTIMIZER;
    Value *read = waits ? value : map_get(&d->later, value);
    if (!read) {
        read = value->def && is_made_again(value->def) ? made_again(d, value) : left_by_last_step(d, value);
        map_put(&d->later, value, read);
    }
    return read;
}

/* The ops of the update, in front of all others. */
static Op *put_update_first(Defer *d)
{
    Op *first = d->f->first;
    while (first && !map_get(&d->now, first))
        first = first->next;
    d->b = builder_at(d->m, d->f, first);
    for (Op *op = d->f->first, *next; op; op = next) {
        next = op->next;
        if (map_get(&d->now, op) || op == first)
            continue;
        for (int i = 0; i < op->args.count; i++)
            op->args.at[i] = read_later(d, arg(op, i));
        remove_op(d->f, op);
        insert_op(d->f, op, first);
    }
    return first;
}

/* New state that is nothing but a value of the step, such as its gradient. */
static void return_later(Defer *d, const StepState *state)
{
    const int first = d->f->results.count - state->count;
    for (int i = 0; i < state->count; i++)
        if (is_deferred(state, i))
            d->f->results.at[first + i] = read_later(d, state->after[i]);
}

/* What is no result of an op of the step gets memory of its own. */
static void return_what_is_left(Defer *d)
{
    Builder b = builder_at(d->m, d->f, NULL);
    for (int i = 0; i < d->lefts.count; i++) {
        Value *value = d->lefts.at[i];
        b.path = intern_text(d->m, "step");
        value = value->def ? value : BUILD(&b, OP_reorder, NO_ATTRS, value);
        add_result(d->m, d->f, value, d->f->params.at[d->f->params.count - d->lefts.count + i]->port);
    }
}

/* --- The two programs --------------------------------------------------------------------------------- */

/* The update alone: the ops of the step before `end`. */
static void write_finish(Defer *d, const Op *end)
{
    Module *m = d->m;
    const StepState state = state_of(d->f);
    Func *finish = add_func(m, intern_text(m, "finish"), FINISH);
    Builder b = builder_at(m, finish, NULL);
    Map own = { .arena = &m->arena };
    for (int i = 0; i < state.count; i++) {
        Value *param = add_param(m, finish, state.before[i]->name, state.before[i]->type);
        param->port = state.before[i]->port;
        map_put(&own, state.before[i], param);
    }
    for (const Op *op = d->f->first; op != end; op = op->next)
        clone_mapped(&b, op, &own);
    for (int i = 0; i < state.count; i++) {
        Value *value =
            is_deferred(&state, i) && state.before[i]->port.kind != PORT_LEFT ? state.after[i] : state.before[i];
        add_result(m, finish, map_get(&own, value), state.before[i]->port);
    }
    drop_dead(finish);
}

/* What the first step, and one after @finish, has is no update. */
static Value *add_pending(Defer *d)
{
    Value *pending = add_param(d->m, d->f, free_name(d->m, d->f, intern_text(d->m, "pending")), scalar_type(I32));
    pending->port = (Port){ .kind = PORT_PENDING };
    take_away(&d->f->params, d->f->params.count - 1);
    insert_value(&d->m->arena, &d->f->params, first_state(d->f), pending);
    Builder b = builder_at(d->m, d->f, d->f->first);
    b.path = intern_text(d->m, "step");
    Value *zero = build_op(&b, OP_constant, (Attrs){ .dtype = intern_text(d->m, "i32") }, 0, NULL);
    return BUILD(&b, OP_gt, NO_ATTRS, pending, zero);
}

/* The step reads the state after the update, if there was one to make. */
static void update_if_pending(Defer *d, Op *end)
{
    Value *pending = add_pending(d);
    const StepState state = state_of(d->f);
    for (int i = 0; i < state.count; i++) {
        Value *old = state.before[i], *new = state.after[i];
        if (!is_deferred(&state, i))
            continue;
        Builder b = builder_at(d->m, d->f, end);
        b.path = old->port.of;
        Value *now = BUILD(&b, OP_where, NO_ATTRS, pending, new, old);
        for (Op *op = end; op; op = op->next)
            replace_value(&op->args, old, now);
        state.after[i] = now;
    }
}

void pass_defer(Module *m);
void pass_defer(Module *m)
{
    Func *step = func_with_role(m, STEP);
    if (!step || !m->train.offload_just_in_time || func_with_role(m, FINISH))
        return;
    Defer d = { .m = m, .f = step, .now.arena = &m->arena, .later.arena = &m->arena };
    drop_dead(step);
    find_what_does_not_wait(&d);
    const StepState state = state_of(step); /* before values with the port LEFT are added */
    Op *end = put_update_first(&d);
    return_later(&d, &state);
    return_what_is_left(&d);
    write_finish(&d, end);
    update_if_pending(&d, end);
    share_equal(step);
}
