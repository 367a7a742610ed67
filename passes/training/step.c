/* step.c -- the training step around a differentiated model: micro-batches, gradient norm, clipping, optimizer, loss
 * scale.  All of it is IR, so later passes treat it like the model.
 *
 *   func step @step(inputs, scalars, state...) {
 *     %total = the divisors of means, over the whole batch
 *     %wq = cast %wq.f32                                  (where the precision is narrow)
 *     %loss, gradients = @gpt2.fwd and @gpt2.bwd, once or in a loop over micro-batches
 *     %g = cast %g                                        (where grad_storage is narrow; a loop adds in f32, and keeps
 *                                                         its sums so)
 *     %norm = sqrt(sum of squares)
 *     state' = updates of (state, gradients * min(1, clip / (norm + 1e-6)))
 *   }
 *
 * How a parameter is updated is a function of the role OPTIMIZE, which the frontend makes from the optimizer's text;
 * its ops become part of the step:
 *
 *   func optimize @adamw.wq(%param, %grad, %lr, %step, %m, %v) {
 *     ...
 *     return %7, %2, %4
 */
#include "step.h"

#include "optimize.h"
#include "simplify/cleanup.h"
#include "term.h"

#include <math.h>

Value *compute_term(Step *s, const char *text, int n, Value *const values[])
{
    Binding binding = { 0 };
    for (int i = 0; i < n; i++)
        binding.value[i] = values[i];
    return build_term(&s->b, read_term(&s->m->arena, text), &binding);
}

Value *number(Step *s, double value) { return build_number(&s->b, value); }

Value *cast_to(Step *s, Value *x, const char *dtype)
{
    return BUILD(&s->b, OP_cast, (Attrs){ .dtype = intern_text(s->m, dtype) }, x);
}

static bool is_fp16(const Module *m) { return m->train.precision == PRECISION_FP16; }

/* --- Parameters of the step ---------------------------------------------------------------- */

Name own_name(Module *m, Name name)
{
    while (find_param(m, name) || find_input(m, name))
        name = intern_format(m, "%s.step", name);
    return name;
}

static Value *add_port(Step *s, Port port, Name name, Type type)
{
    Value *value = add_param(s->m, s->f, name, type);
    value->port = port;
    return value;
}

static Value *add_scalar(Step *s, PortKind kind, DType dtype)
{
    return add_port(s, (Port){ .kind = kind, .of = NULL }, own_name(s->m, intern_text(s->m, port_word(kind))),
                    scalar_type(dtype));
}

static void add_inputs(Step *s)
{
    for (const Input *input = s->m->inputs; input; input = input->next)
        add_port(s, (Port){ .kind = PORT_INPUT, .of = input->name }, input->name,
                 s->micros > 1 ? with_dim_first(input->type, s->micro) : input->type);
}

bool is_optimized(const Step *s, const Value *weight)
{
    return is_trained(s->m, weight->port) && !find_param(s->m, weight->port.of)->state;
}

const Func *update_of(const Step *s, const Value *weight)
{
    const Param *param = find_param(s->m, weight->port.of);
    return param->update && is_optimized(s, weight) ? find_func(s->m, param->update) : NULL;
}

/* The optimizer's tensors: the first of every weight, then the second of those that have two, ... */
static void add_optimizer_state(Step *s)
{
    s->state = NEW_ARRAY(&s->m->arena, Values, s->weights.count);
    for (int k = N_UPDATE_PARAMS, more = 1; more; k++) {
        more = 0;
        for (int i = 0; i < s->weights.count; i++) {
            const Value *weight = s->weights.at[i];
            const Func *update = update_of(s, weight);
            if (!update || k >= update->params.count)
                continue;
            const Value *state = update->params.at[k];
            Name name = own_name(s->m, intern_format(s->m, "%s.%s", state->name, weight->name));
            const Port port = { PORT_OPTIMIZER, weight->port.of, state->name };
            Type type = state->type;
            type.on = weight->type.on;
            push_value(&s->m->arena, &s->state[i], add_port(s, port, name, type));
            more++;
        }
    }
}

static bool counts_steps(const Step *s)
{
    bool counts = false;
    for (int i = 0; i < s->weights.count; i++) {
        const Func *update = update_of(s, s->weights.at[i]);
        counts |= update && is_used(update, update->params.at[UPDATE_STEP]);
    }
    return counts;
}

static void add_step_params(Step *s)
{
    const Func *model = s->model->fwd;
    add_inputs(s);
    s->step = add_scalar(s, PORT_STEP_NUMBER, I32);
    s->lr = add_scalar(s, PORT_LEARNING_RATE, F32);
    if (param_for(model, PORT_DROPOUT_KEY, NULL))
        s->key = add_scalar(s, PORT_DROPOUT_KEY, I32);
    const ParamIndex params = index_params(&s->m->arena, model);
    for (const Param *param = s->m->params; param; param = param->next)
        if (indexed_param(&params, (Port){ .kind = PORT_PARAM, .of = param->name }))
            push_value(&s->m->arena, &s->weights,
                       add_port(s, (Port){ .kind = PORT_PARAM, .of = param->name }, param->name, param->type));
    add_optimizer_state(s);
    if (is_fp16(s->m)) {
        s->loss_scale = add_scalar(s, PORT_LOSS_SCALE, F32);
        s->good_steps = add_scalar(s, PORT_GOOD_STEPS, I32);
    }
    if (s->m->train.skip_spikes > 0) {
        s->skipped_steps = add_scalar(s, PORT_SKIPPED_STEPS, I32);
        s->usual_norm = add_scalar(s, PORT_USUAL_NORM, F32);
        s->norm_steps = add_scalar(s, PORT_NORM_STEPS, I32);
    }
    if ((s->loss_scale || s->usual_norm) && counts_steps(s))
        s->applied_steps = add_scalar(s, PORT_APPLIED_STEPS, I32);
}

/* --- Forward and backward ------------------------------------------------------------------ */

Value *whole(Step *s, double value)
{
    return build_op(&s->b, OP_constant, (Attrs){ .value = value, .dtype = intern_text(s->m, "i32") }, 0, NULL);
}

/* The `origin` of micro-batch i: i times its number of sequences. */
static Value *origins(Step *s)
{
    Dims over = { .count = 1, .dim = { s->micro } };
    Value *index = build_op(&s->b, OP_iota, (Attrs){ .dims = over }, 0, NULL);
    return BUILD(&s->b, OP_mul, NO_ATTRS, index, whole(s, (double)s->m->train.microbatch));
}

/* The operand of the model for each of its parameters, but for totals. */
static Value *model_operand(Step *s, const Value *param)
{
    Value *own = param_for(s->f, param->port.kind, param->port.of);
    if (port_is_measured(param->port.kind))
        return build_zeros(&s->b, &param->type);
    if (param->port.kind == PORT_ORIGIN)
        return s->micros > 1 ? origins(s) : whole(s, 0);
    if (!own || own->type.dtype == param->type.dtype)
        return own;
    return cast_to(s, own, dtype_name[param->type.dtype]);
}

/* The model's operand of that port, or else the step's: labels that only the totals count. */
static Value *operand_for(Step *s, Port port)
{
    const Func *model = s->model->fwd;
    for (int i = 0; i < model->params.count; i++)
        if (same_port(model->params.at[i]->port, port))
            return s->operands.at[i];
    return param_for(s->f, port.kind, port.of);
}

/* The type in which the i-th result of @f is kept until the update.  Only gradients may be narrow: what states are
 * updated with may count something. */
static Type kept_type(const Step *s, const Func *f, int i)
{
    const Port port = result_port(f, i);
    Type type = f->results.at[i]->type;
    if (s->m->train.grad_storage && port.kind == PORT_GRADIENT && !find_param(s->m, port.of)->state)
        type.dtype = dtype_named(s->m->train.grad_storage);
    return type;
}

static Value *kept(Step *s, Builder *b, const Func *f, int i, Value *result)
{
    const Type type = kept_type(s, f, i);
    return finish_gradient(b, result, &type, type.dtype);
}

/* Is the result the largest of all micro-batches, not their sum? */
static bool takes_most(const Step *s, const Func *f, int i)
{
    const Port port = result_port(f, i);
    return port.kind == PORT_GRADIENT && find_param(s->m, port.of)->most;
}

/* What micro-batches begin with. */
static Value *before_micros(Step *s, const Func *f, int i)
{
    const Type type = kept_type(s, f, i);
    Value *zeros = build_zeros(&s->b, &type);
    return takes_most(s, f, i) ? COMPUTE(s, "a + b", zeros, number(s, -INFINITY)) : zeros;
}

/* "grad.h.attn.wq", "sum.loss", "sum.3": of the sums of result i, beside the parameters of @f. */
static Name sum_name(Module *m, const Func *f, int i)
{
    const Port port = result_port(f, i);
    const Name name = port.kind == PORT_GRADIENT ? intern_format(m, "grad.%s", port.of)
                      : port.kind == PORT_LOSS   ? intern_text(m, "sum.loss")
                                                 : intern_format(m, "sum.%d", i);
    return free_name(m, f, name);
}

/* @f.sums: the results of @f added to its first parameters: the body of a loop over micro-batches. */
static Func *adding_body(Step *s, const Func *f, Name name)
{
    Module *m = s->m;
    Func *body = add_func(m, name, PLAIN);
    Builder b = { .module = m, .func = body };
    Values sums = { 0 }, args = { 0 };
    for (int i = 0; i < f->results.count; i++)
        push_value(&m->arena, &sums, add_param(m, body, sum_name(m, f, i), kept_type(s, f, i)));
    for (int i = 0; i < f->params.count; i++)
        push_value(&m->arena, &args, add_param(m, body, f->params.at[i]->name, f->params.at[i]->type));
    const Op *call = build(&b, OP_call, (Attrs){ .callee = f->name }, args.count, args.at);
    for (int i = 0; i < f->results.count; i++) {
        const OpKind kind = takes_most(s, f, i) ? OP_maximum : OP_add;
        Value *sum = BUILD(&b, kind, NO_ATTRS, sums.at[i], call->results.at[i]);
        add_result(m, body, kept(s, &b, f, i, sum), result_port(f, i));
    }
    return body;
}

/* Results of @f, summed over micro-batches, of which `abreast` are to be computed beside each other. */
static const Op *sum_over_micros(Step *s, const Func *f, Values operands, int64_t abreast)
{
    Module *m = s->m;
    if (s->micros == 1)
        return build(&s->b, OP_call, (Attrs){ .callee = f->name }, operands.count, operands.at);
    const Func *body = adding_body(s, f, intern_format(m, "%s.micro", f->name));
    Values args = { 0 };
    for (int i = 0; i < f->results.count; i++)
        push_value(&m->arena, &args, before_micros(s, f, i));
    for (int i = 0; i < operands.count; i++)
        push_value(&m->arena, &args, operands.at[i]);
    Attrs attrs = { .callee = body->name, .dims = { .count = 1, .dim = { s->micro } }, .carried = f->results.count };
    attrs.abreast = abreast > 1 ? abreast : 0;
    return build(&s->b, OP_loop, attrs, args.count, args.at);
}

/* The divisors of means: the counts and sums of weights from TOTALS, over the whole batch; 1 instead of 0. */
static void find_totals(Step *s)
{
    Func *totals = func_with_role(s->m, TOTALS);
    const Func *model = s->model->fwd;
    s->totals = totals;
    if (totals) {
        Values operands = { 0 };
        for (int i = 0; i < totals->params.count; i++)
            push_value(&s->m->arena, &operands, operand_for(s, totals->params.at[i]->port));
        totals->role = PLAIN;
        s->counts = sum_over_micros(s, totals, operands, 1);
    }
    for (int i = 0; i < model->params.count; i++)
        if (!s->operands.at[i])
            s->operands.at[i] = COMPUTE(s, "where(eq(a, 0), 1, a)",
                                        s->counts->results.at[result_at(totals, model->params.at[i]->port)]);
}

/* @NAME.grad: one micro-batch, forward and backward; (operands of the model, loss scale) -> loss, gradients. */
static Func *gradient_func(Step *s)
{
    Module *m = s->m;
    const Derivative *d = s->model;
    Func *f = add_func(m, intern_format(m, "%s.grad", m->name), PLAIN);
    Builder b = { .module = m, .func = f };
    Values args = { 0 }, back = { 0 };
    for (int i = 0; i < d->fwd->params.count; i++)
        push_value(&m->arena, &args, add_param(m, f, d->fwd->params.at[i]->name, d->fwd->params.at[i]->type));
    Value *scale = s->loss_scale ? add_param(m, f, s->loss_scale->name, scalar_type(F32)) : NULL;
    const Op *fwd = build(&b, OP_call, (Attrs){ .callee = d->fwd->name }, args.count, args.at);
    push_value(&m->arena, &back, scale ? scale : build_number(&b, 1));
    for (int i = 1; i < fwd->results.count; i++)
        push_value(&m->arena, &back, fwd->results.at[i]);
    for (int i = 0; i < d->read.count; i++)
        push_value(&m->arena, &back, args.at[index_of(&d->fwd->params, d->read.at[i])]);
    const Op *bwd = build(&b, OP_call, (Attrs){ .callee = d->bwd->name }, back.count, back.at);
    add_result(m, f, result(fwd), (Port){ .kind = PORT_LOSS });
    for (int i = 0, next = 0; i < d->fwd->params.count; i++) {
        Port port = d->fwd->params.at[i]->port;
        if (!has_gradient(m, port))
            continue;
        port.kind = port_is_measured(port.kind) ? port.kind : PORT_GRADIENT;
        add_result(m, f, bwd->results.at[next++], port);
    }
    return f;
}

static void forward_and_backward(Step *s)
{
    const Func *model = s->model->fwd;
    for (int i = 0; i < model->params.count; i++)
        push_value(&s->m->arena, &s->operands, model_operand(s, model->params.at[i]));
    find_totals(s);
    const Func *f = s->gradient_func = gradient_func(s);
    if (s->loss_scale)
        push_value(&s->m->arena, &s->operands, s->loss_scale);
    s->sums = sum_over_micros(s, f, s->operands, s->m->train.abreast);
    s->loss = s->sums->results.at[0];
    s->loss->name = own_name(s->m, intern_text(s->m, "loss"));
    for (int i = 0; i < s->weights.count; i++) {
        const Value *weight = s->weights.at[i];
        const int at = result_at(f, (Port){ .kind = PORT_GRADIENT, .of = weight->port.of });
        Value *gradient = at < 0 ? NULL : s->sums->results.at[at];
        if (gradient) {
            s->b.path = weight->name;
            gradient = kept(s, &s->b, f, at, gradient);
            gradient->name = own_name(s->m, intern_format(s->m, "grad.%s", weight->name));
            gradient = finish_gradient(&s->b, gradient, &gradient->type, F32);
        }
        push_value(&s->m->arena, &s->gradients, gradient);
    }
}

/* The functions that are now part of the step. */
static void drop_updates(Module *m)
{
    for (Param *param = m->params; param; param = param->next)
        param->update = NULL;
    for (Func *f = m->funcs, *next; f; f = next) {
        next = f->next;
        if (f->role == UPDATE || f->role == OPTIMIZE)
            remove_func(m, f);
    }
}

/* "micro", unless a dim of the model has that name. */
static Name micro_name(Module *m)
{
    const Name name = intern_text(m, "micro");
    bool is_taken = false;
    for (const Func *f = m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count; i++)
            is_taken |= find_dim(&f->params.at[i]->type, name) >= 0;
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->results.count; i++)
                is_taken |= find_dim(&op->results.at[i]->type, name) >= 0;
    }
    return is_taken ? intern_text(m, "micro.step") : name;
}

void write_step(Module *m, const Derivative *model)
{
    const Train *t = &m->train;
    Step s = { .m = m, .model = model };
    s.f = add_func(m, intern_text(m, "step"), STEP);
    s.b = (Builder){ .module = m, .func = s.f, .path = intern_text(m, "step") };
    s.micros = t->microbatch > 0 ? t->batch / t->microbatch : 1;
    s.micro = (Dim){ .name = micro_name(m), .size = s.micros, .padded = s.micros };
    add_step_params(&s);
    forward_and_backward(&s);
    find_norm(&s);
    update_state(&s);
    drop_updates(m);
    share_equal(s.f);
    drop_dead(s.f);
}
