/* step_update.c -- the second part of the training step: the norm of the gradients, clipping, the optimizer, and steps
 * that change nothing, because gradients overflowed or are a spike. */
#include "step.h"

#include "optimize.h"

enum {
    GROW_AFTER = 2000, /* steps without overflow before the loss scale doubles */
    FEWEST_NORMS = 20, /* steps before the first one that may be a spike */
    MOST_NORMS = 100   /* steps that the usual norm is the mean of, the newest with weight 1 / 100 */
};

void find_norm(Step *s)
{
    Value *total = NULL;
    for (int i = 0; i < s->gradients.count; i++) {
        Value *gradient = s->gradients.at[i];
        Attrs all = { 0 };
        if (!gradient || !is_optimized(s, s->weights.at[i]))
            continue;
        for (int j = 0; j < gradient->type.rank; j++)
            add_name(&all.over, gradient->type.dim[j].name);
        s->b.path = s->weights.at[i]->name;
        Value *squares = BUILD(&s->b, OP_square, NO_ATTRS, gradient);
        if (all.over.count)
            squares = BUILD(&s->b, OP_sum, all, squares);
        total = total ? COMPUTE(s, "a + b", total, squares) : squares;
    }
    s->b.path = intern_text(s->m, "grad_norm");
    s->norm = COMPUTE(s, "sqrt(a)", total);
    if (s->loss_scale)
        s->norm = COMPUTE(s, "a / b", s->norm, s->loss_scale);
    s->norm->name = own_name(s->m, s->b.path);
}

/* The factor of gradients: 1 / loss scale and min(1, clip / (norm + 1e-6)); NULL: none. */
static Value *gradient_factor(Step *s)
{
    Value *factor = NULL;
    if (s->m->train.clip > 0)
        factor = COMPUTE(s, "minimum(b / (a + c), 1)", s->norm, number(s, s->m->train.clip), number(s, 1e-6));
    if (s->loss_scale)
        factor = factor ? COMPUTE(s, "a / b", factor, s->loss_scale) : COMPUTE(s, "1 / a", s->loss_scale);
    return factor;
}

/* The number of this step among those that are applied, from 1: a step that is skipped does not count. */
static Value *applied_step(Step *s)
{
    return COMPUTE(s, "a + 1", cast_to(s, s->applied_steps ? s->applied_steps : s->step, "f32"));
}

/* The ops of the function, in the step; `own` has the values of its parameters, and gets those of its results. */
static void inline_ops(Step *s, const Func *f, Map *own)
{
    for (const Op *op = f->first; op; op = op->next) {
        Values operands = { 0 };
        for (int k = 0; k < op->args.count; k++)
            push_value(own->arena, &operands, map_get(own, arg(op, k)));
        const Op *copy = build(&s->b, op->kind, op->attrs, operands.count, operands.at);
        for (int k = 0; k < op->results.count; k++)
            map_put(own, op->results.at[k], copy->results.at[k]);
    }
}

/* The weight after its update function, then its new state. */
static Values updated(Step *s, int i, Value *gradient)
{
    Module *m = s->m;
    Value *weight = s->weights.at[i];
    const Func *f = update_of(s, weight);
    Values new = { 0 };
    if (!f) {
        push_value(&m->arena, &new, COMPUTE(s, "a - b * c", weight, s->lr, gradient));
        return new;
    }
    Map own = { .arena = &m->arena };
    Value *const args[N_UPDATE_PARAMS] = { weight, gradient, s->lr, s->applied_step };
    for (int k = 0; k < f->params.count; k++)
        map_put(&own, f->params.at[k], k < N_UPDATE_PARAMS ? args[k] : s->state[i].at[k - N_UPDATE_PARAMS]);
    inline_ops(s, f, &own);
    for (int k = 0; k < f->results.count; k++)
        push_value(&m->arena, &new, map_get(&own, f->results.at[k]));
    return new;
}

static Values after_step(Step *s, int i);

static int weight_at(const Step *s, Name name)
{
    int i = 0;
    while (s->weights.at[i]->port.of != name)
        i++;
    return i;
}

/* A tensor, before or after the step, or the statistic of a state: an operand of a function with the role UPDATE. */
static Value *update_operand(Step *s, Port port)
{
    const int i = weight_at(s, port.of);
    if (port.kind == PORT_PARAM)
        return port.slot ? after_step(s, i).at[0] : s->weights.at[i];
    return s->loss_scale ? COMPUTE(s, "a / b", s->gradients.at[i], s->loss_scale) : s->gradients.at[i];
}

/* The new value of a tensor is written over the old one, which a loop over micro-batches reads in each turn: what such
 * a loop makes is copied, and so is another tensor. */
static Value *made_here(Step *s, Value *value)
{
    const bool is_own = value->def && info(value->def)->family != CONTROL;
    return is_own ? value : BUILD(&s->b, OP_reorder, NO_ATTRS, value);
}

/* A tensor after the step, by the ops of the function that returns it; `own`: what its optimizer has made of it, or
 * the state before the step.  Without such a function it is that. */
static Value *updated_by_rule(Step *s, Value *own_value, Port port)
{
    Map own = { .arena = &s->m->arena };
    const Func *f = s->m->funcs;
    while (f && (f->role != UPDATE || result_at(f, port) < 0))
        f = f->next;
    if (!f)
        return own_value;
    for (int i = 0; i < f->params.count; i++) {
        const Port operand = f->params.at[i]->port;
        const bool is_own = operand.kind == PORT_PARAM && operand.of == port.of;
        map_put(&own, f->params.at[i], is_own ? own_value : update_operand(s, operand));
    }
    inline_ops(s, f, &own);
    return made_here(s, map_get(&own, f->results.at[result_at(f, port)]));
}

static const double LARGEST_NORM = 3e38; /* that f32 holds */

/* The largest norm that is no spike. */
static Value *norm_limit(Step *s)
{
    Value *begun = COMPUTE(s, "ge(a, b)", s->norm_steps, whole(s, FEWEST_NORMS));
    Value *limit = COMPUTE(s, "a * b", s->usual_norm, number(s, s->m->train.skip_spikes));
    return COMPUTE(s, "where(a, b, c)", begun, limit, number(s, LARGEST_NORM));
}

/* Is the step applied?  NULL: always.  A gradient that overflowed in fp16 has an infinite norm, or none: NaN is not
 * below any limit. */
static Value *is_applied(Step *s)
{
    if (s->usual_norm)
        return COMPUTE(s, "le(a, b)", s->norm, norm_limit(s));
    return s->loss_scale ? COMPUTE(s, "eq(a - a, 0)", s->norm) : NULL;
}

/* A step that is skipped changes no weight, and no state of the optimizer. */
static Value *if_applied(Step *s, Value *new, Value *old)
{
    return s->applied ? COMPUTE(s, "where(a, b, c)", s->applied, new, old) : new;
}

/* The loss scale halves after an overflow and doubles after many good steps. */
static void update_loss_scale(Step *s, Values *state)
{
    Value *finite = COMPUTE(s, "eq(a - a, 0)", s->norm);
    Value *good = COMPUTE(s, "a + b", s->good_steps, whole(s, 1));
    Value *grows = COMPUTE(s, "ge(a, b)", good, whole(s, GROW_AFTER));
    Value *scale = COMPUTE(s, "where(a, where(b, c * 2, c), c * 0.5)", finite, grows, s->loss_scale);
    Value *kept = COMPUTE(s, "where(a, b, c)", grows, whole(s, 0), good);
    push_value(&s->m->arena, state, COMPUTE(s, "maximum(a, 1)", scale));
    push_value(&s->m->arena, state, COMPUTE(s, "where(a, b, c)", finite, kept, whole(s, 0)));
}

/* A spike counts as a norm at the limit, so that norms which stay high become usual; an overflow does not count. */
static void update_usual_norm(Step *s, Values *state)
{
    Arena *arena = &s->m->arena;
    Value *finite = COMPUTE(s, "eq(a - a, 0)", s->norm);
    Value *steps = COMPUTE(s, "minimum(a + b, c)", s->norm_steps, whole(s, 1), whole(s, MOST_NORMS));
    Value *norm = COMPUTE(s, "minimum(a, b)", s->norm, norm_limit(s));
    Value *mean = COMPUTE(s, "a + (b - a) / c", s->usual_norm, norm, cast_to(s, steps, "f32"));
    push_value(arena, state, COMPUTE(s, "where(a, b, b + c)", s->applied, s->skipped_steps, whole(s, 1)));
    push_value(arena, state, COMPUTE(s, "where(a, b, c)", finite, mean, s->usual_norm));
    push_value(arena, state, COMPUTE(s, "where(a, b, c)", finite, steps, s->norm_steps));
}

/* A weight after the step, and its new state. */
static Values after_this_step(Step *s, int i)
{
    Value *w = s->weights.at[i], *g = s->gradients.at[i];
    Values new = { 0 };
    if (!g || !is_optimized(s, w)) {
        push_value(&s->m->arena, &new, updated_by_rule(s, w, w->port));
    } else {
        if (s->factor)
            g = COMPUTE(s, "a * b", g, s->factor);
        if (s->m->train.clip_value > 0)
            g = COMPUTE(s, "maximum(minimum(a, b), -b)", g, number(s, s->m->train.clip_value));
        new = updated(s, i, g);
        new.at[0] = updated_by_rule(s, new.at[0], w->port);
    }
    for (int k = 0; k < new.count &&new.at[k] != w; k++)
        new.at[k] = if_applied(s, new.at[k], k ? s->state[i].at[k - 1] : w);
    return new;
}

/* The same, computed once: updates of other tensors may read it. */
static Values after_step(Step *s, int i)
{
    const Name path = s->b.path, where = s->b.where;
    if (!s->updated[i].count) {
        s->b.path = s->weights.at[i]->name;
        s->b.where = find_param(s->m, s->b.path)->where;
        s->updated[i] = after_this_step(s, i);
        s->b.path = path, s->b.where = where;
    }
    return s->updated[i];
}

/* New values of all weights, and after them of the optimizer's state in the order of add_optimizer_state. */
static Values update_weights(Step *s)
{
    Arena *arena = &s->m->arena;
    Values all = { 0 };
    int longest = 0;
    for (int i = 0; i < s->weights.count; i++) {
        const Values new = after_step(s, i);
        push_value(arena, &all, new.at[0]);
        longest = new.count > longest ? new.count : longest;
    }
    for (int k = 1; k < longest; k++)
        for (int i = 0; i < s->weights.count; i++)
            if (k < s->updated[i].count)
                push_value(arena, &all, s->updated[i].at[k]);
    return all;
}

void update_state(Step *s)
{
    s->applied = is_applied(s);
    s->factor = gradient_factor(s);
    s->applied_step = applied_step(s);
    s->updated = NEW_ARRAY(&s->m->arena, Values, s->weights.count);
    Values state = update_weights(s);
    if (s->loss_scale)
        update_loss_scale(s, &state);
    if (s->usual_norm)
        update_usual_norm(s, &state);
    if (s->applied_steps)
        push_value(&s->m->arena, &state, COMPUTE(s, "where(a, b + c, b)", s->applied, s->applied_steps, whole(s, 1)));
    add_result(s->m, s->f, s->loss, (Port){ .kind = PORT_LOSS });
    add_result(s->m, s->f, s->norm, (Port){ .kind = PORT_GRADIENT_NORM });
    add_measures(&s->b, s->gradient_func, s->sums, s->loss_scale);
    for (int i = 0; s->totals && i < s->totals->results.count; i++)
        add_result(s->m, s->f, s->counts->results.at[i], result_port(s->totals, i));
    for (int i = 0, at = first_state(s->f); i < state.count; i++)
        add_result(s->m, s->f, state.at[i], s->f->params.at[at++]->port);
}
