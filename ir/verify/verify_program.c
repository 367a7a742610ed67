/* verify_program.c -- checks the head of a module against its functions.
 *
 * A fragment of IR needs no head.  A module that becomes a trainer needs a head that is consistent with its functions.
 */
#include "ir.h"
#include "map.h"
#include "optimize.h"
#include "sizes.h"

#include <float.h>
#include <string.h>

#define WRONG(m, at_loc, ...) (error_at((m)->diags, (Where){ .at = (at_loc) }, __VA_ARGS__), false)

/* --- train { } ------------------------------------------------------------------------------- */

static bool is_amount(double number) { return number >= 0 && number <= FLT_MAX; }

static bool verify_numbers(Module *m)
{
    const Train *t = &m->train;
    if (!is_amount(t->lr) || !is_amount(t->min_lr) || !is_amount(t->clip) || !is_amount(t->clip_value))
        return WRONG(m, m->train_loc, "train: lr, min_lr, clip and clip_value must not be negative");
    if (!(t->ema >= 0 && (float)t->ema < 1))
        return WRONG(m, m->train_loc, "train: ema must be at least 0 and below 1");
    if (t->batch < 1 || t->microbatch < 1 || t->batch % t->microbatch != 0)
        return WRONG(m, m->train_loc,
                     "train: batch and microbatch are required, and batch must be a multiple of microbatch");
    if (t->warmup < 0 || t->steps < 0 || t->decay < 0 || t->warmup > INT32_MAX || t->steps > INT32_MAX ||
        t->decay > INT32_MAX || (t->steps && t->warmup + t->decay > t->steps))
        return WRONG(m, m->train_loc, "train: warmup and decay must not exceed the steps");
    if (t->steps == 0 && t->schedule != SCHEDULE_CONSTANT)
        return WRONG(m, m->train_loc, "train: schedule=%s needs steps", Schedule_words[t->schedule]);
    return true;
}

static bool verify_train(Module *m)
{
    const Train *t = &m->train;
    if (!t->optimizer)
        return WRONG(m, m->train_loc, "the module needs a line 'train {optimizer=...}'");
    if (!t->schedule)
        return WRONG(m, m->train_loc, "train: schedule must be constant, linear, cosine or wsd");
    if (!t->precision)
        return WRONG(m, m->train_loc, "train: precision must be fp32, bf16, fp16 or fp8");
    if (t->zero < 0 || t->zero > 3 || (t->zero && !t->zero_axes && m->naxes) || t->bucket < 0 || t->seed < 0)
        return WRONG(m, m->train_loc,
                     "train: zero must be from 0 to 3, over zero_axes; bucket and seed must not be negative");
    return verify_numbers(m);
}

/* --- Inputs, batch, vocabulary ------------------------------------------------------------------ */

static bool verify_input(Module *m, const Input *input)
{
    const Type *type = &input->type;
    const Input *of = find_input(m, input->of);
    bool has_batch = m->batch && type->rank && type->dim[0].name == m->batch;
    if ((m->batch && !has_batch) || is_half(type->dtype) || type->rank == MAX_RANK)
        return WRONG(m, input->loc, "an input is f32, i32 or bool[%s%s...] of at most %d dims, but %%%s is %s",
                     m->batch ? m->batch : "", m->batch ? ", " : "", MAX_RANK - 1, input->name, type_text(m, type));
    if (!of || of->of != of->name || !type_equal(&of->type, type) || (of == input) != (input->shift == 0))
        return WRONG(m, input->loc, "%%%s gets the data of %%%s, which is no input of this type with its own data",
                     input->name, input->of);
    if (has_batch && type->dim[0].size != m->train.microbatch)
        return WRONG(m, input->loc, "the input %%%s has %lld sequences, and train.microbatch is %lld", input->name,
                     (long long)type->dim[0].size, (long long)m->train.microbatch);
    if (input->shift < 0 || input->shift > INT32_MAX || input->vocab < 0 || input->vocab > INT32_MAX ||
        input->ignored < INT32_MIN || input->ignored > INT32_MAX)
        return WRONG(m, input->loc, "the shift and the vocabulary of %%%s must be from 0 to 2147483647", input->name);
    for (const Input *other = m->inputs; other != input; other = other->next)
        if (other->name == input->name)
            return WRONG(m, input->loc, "a second input %%%s", input->name);
    return true;
}

static bool verify_inputs(Module *m)
{
    if (!m->inputs)
        return WRONG(m, m->train_loc, "the module has no input");
    for (const Input *input = m->inputs; input; input = input->next)
        if (!verify_input(m, input))
            return false;
    if (!m->batch && m->train.batch != 1)
        return WRONG(m, m->train_loc, "the module names no batch dim, and train.batch is not 1");
    return true;
}

static bool verify_vocab(Module *m)
{
    const Func *f = func_with_role(m, PREDICT);
    if (!f != !m->vocab)
        return WRONG(m, f ? f->loc : m->train_loc,
                     f ? "the module has @%s, but no line 'vocab' that names the dim of its result"
                       : "the module has a vocab, but no function with the role 'predict'",
                     f ? f->name : "");
    if (f && (f->results.count != 1 || find_dim(&f->results.at[0]->type, m->vocab) < 0))
        return WRONG(m, f->loc, "@%s returns logits along '%s'", f->name, m->vocab);
    if (f && !param_for(f, PORT_POSITION, NULL))
        return WRONG(m, f->loc, "@%s has no parameter for the position of its logits", f->name);
    return true;
}

/* --- Parameters ------------------------------------------------------------------------------- */

enum { MAX_COPIES = 1 << 20 };

/* The full names of the tensors from the first '*' of `path` on, whose copies are dim `dim` of the parameter: none is
 * that of another one. */
static bool verify_names(Module *m, Map *names, const Param *param, const char *path, int dim)
{
    const char *star = strchr(path, '*');
    if (!star) {
        const Name name = intern(m, path, (int)strlen(path));
        const Param *other = map_get(names, name);
        map_put(names, name, (void *)param);
        return !other || WRONG(m, param->loc, "%%%s and %%%s both have the tensor '%s' of a checkpoint", other->name,
                               param->name, name);
    }
    if (dim == param->type.rank)
        return WRONG(m, param->loc, "the path '%s' of %%%s has a '*' for each dim of copies, and its type has %d dims",
                     param->path, param->name, param->type.rank);
    if (param->type.dim[dim].size > MAX_COPIES)
        return WRONG(m, param->loc, "%%%s has more than %d copies along '%s'", param->name, MAX_COPIES,
                     param->type.dim[dim].name);
    bool good = true;
    for (int64_t i = 0; good && i < param->type.dim[dim].size; i++) {
        const int64_t copy = dim ? i : param->first + i * (1 + param->skips);
        good = verify_names(m, names, param,
                            arena_text(names->arena, "%.*s%lld%s", (int)(star - path), path, (long long)copy, star + 1),
                            dim + 1);
    }
    return good;
}

static bool verify_params(Module *m)
{
    Arena scratch = { 0 };
    Map names = { .arena = &scratch };
    bool good = true;
    int64_t count = 0;
    for (const Param *param = m->params; good && param; param = param->next) {
        count = checked_sum(count, tensor_count(param));
        good =
            count <= MAX_TENSORS || WRONG(m, param->loc, "with the copies of %%%s the module has more than %d tensors",
                                          param->name, MAX_TENSORS);
    }
    for (const Param *param = m->params; good && param; param = param->next)
        good = verify_names(m, &names, param, param->path, 0);
    arena_free(&scratch);
    return good;
}

static bool verify_rules(Module *m)
{
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        for (int i = 0; i < rule->dims.count; i++)
            if (!has_dim(m, rule->dims.name[i]))
                return WRONG(m, m->train_loc, "shard: no tensor of the module has the dim '%s'", rule->dims.name[i]);
    return true;
}

/* --- Functions ------------------------------------------------------------------------------- */

/* Is it declared, or a number that is fed or kept? */
static bool is_known(Module *m, const Func *f, const Value *param)
{
    const Port port = param->port;
    const bool trains = returns_state(f) || f->role == MODEL;
    if (port.kind == PORT_INPUT)
        return find_input(m, port.of) != NULL;
    if (f->role == UPDATE && port.kind == PORT_GRADIENT)
        return find_param(m, port.of) && find_param(m, port.of)->state;
    if (port.kind == PORT_LEFT)
        return returns_state(f);
    if (port.kind == PORT_PARAM || (returns_state(f) && port_is_state(port.kind) && port_is_named(port.kind)))
        return find_param(m, port.of) != NULL;
    if (param->type.rank == 0 && f->role == EVAL && port.kind == PORT_TOTAL)
        return result_at(f, port) >= 0;
    if (port.kind == PORT_POSITION)
        return f->role == PREDICT && type_equal(&param->type, &(Type){ .dtype = I32 });
    if (port_is_measured(port.kind))
        return f->role == MODEL && param->type.dtype == F32;
    return param->type.rank == 0 && trains &&
           (port_is_fed(port.kind) || (returns_state(f) && port_is_state(port.kind)));
}

static bool verify_taken(Module *m, const Func *f)
{
    const ParamIndex params = index_params(&m->arena, f);
    for (int i = 0; i < f->params.count; i++) {
        const Value *param = f->params.at[i];
        if (!is_known(m, f, param))
            return WRONG(m, f->loc, "@%s takes %%%s, which is neither an input nor a parameter of the module", f->name,
                         param->name);
        if (indexed_param(&params, param->port) != param)
            return WRONG(m, f->loc, "@%s takes %%%s, which duplicates another of its parameters", f->name, param->name);
    }
    return true;
}

static bool verify_all_taken(Module *m, const Func *f)
{
    const ParamIndex params = index_params(&m->arena, f);
    for (const Input *input = m->inputs; input; input = input->next)
        if (!indexed_param(&params, (Port){ .kind = PORT_INPUT, .of = input->name }))
            return WRONG(m, input->loc, "@%s does not take the input %%%s", f->name, input->name);
    for (const Param *param = m->params; param; param = param->next)
        if (!indexed_param(&params, (Port){ .kind = PORT_PARAM, .of = param->name }))
            return WRONG(m, param->loc, "@%s does not take the parameter %%%s", f->name, param->name);
    return true;
}

/* (param, grad, lr, step, state) -> (param, state), of the parameter's type. */
static bool verify_update(Module *m, const Param *param)
{
    const Func *f = param->update ? find_func(m, param->update) : NULL;
    if (!param->update)
        return true;
    if (!f || f->role != OPTIMIZE || f->params.count < N_UPDATE_PARAMS ||
        f->results.count != f->params.count - N_UPDATE_PARAMS + 1)
        return WRONG(m, param->loc,
                     "%%%s needs @%s with the role 'optimize': (param, grad, lr, step, state) -> (param, state)",
                     param->name, param->update);
    for (int i = 0; i < f->results.count; i++) {
        const Value *old = f->params.at[i ? i - 1 + N_UPDATE_PARAMS : 0], *new = f->results.at[i];
        if (!type_equal(&old->type, &new->type))
            return WRONG(m, f->loc, "@%s takes %%%s : %s, but returns %%%s : %s", f->name, old->name,
                         type_text(m, &old->type), new->name, type_text(m, &new->type));
    }
    if (!same_dims(&f->params.at[0]->type, &param->type) || !same_dims(&f->params.at[1]->type, &param->type))
        return WRONG(m, param->loc, "@%s updates %s, not %%%s : %s", f->name, type_text(m, &f->params.at[0]->type),
                     param->name, type_text(m, &param->type));
    return true;
}

/* A step returns the loss, the norm of the gradient, measures, counts, and its state. */
static bool verify_step(Module *m, const Func *f)
{
    if (!param_for(f, PORT_LEARNING_RATE, NULL) || !param_for(f, PORT_STEP_NUMBER, NULL))
        return WRONG(m, f->loc, "@%s has no parameters for step and lr", f->name);
    const int kept = state_of(f).count;
    int known = kept + 2;
    for (int i = 0; i < f->results.count; i++)
        known += port_is_measured(result_port(f, i).kind) || result_port(f, i).kind == PORT_TOTAL;
    if (f->results.count != known)
        return WRONG(m, f->loc, "@%s returns %d values: the loss, the norm, what is measured and its state are %d",
                     f->name, f->results.count, known);
    return true;
}

static bool verify_totals(Module *m, const Func *model)
{
    const Func *totals = func_with_role(m, TOTALS);
    for (int i = 0; i < model->params.count; i++) {
        const Port port = model->params.at[i]->port;
        if (port.kind == PORT_TOTAL && (!totals || result_at(totals, port) < 0))
            return WRONG(m, model->loc, "@%s takes %%%s as total(%s), which no function with the role 'totals' returns",
                         model->name, model->params.at[i]->name, port.of);
    }
    return true;
}

static bool is_float_scalar(const Value *value) { return value->type.rank == 0 && is_float(value->type.dtype); }

/* Each is of the records of a micro-batch, and has a name of its own. */
static bool verify_outputs(Module *m, const Func *f)
{
    for (int i = 0; i < f->results.count; i++) {
        const Type *type = &f->results.at[i]->type;
        const Port port = result_port(f, i);
        const int batch = m->batch ? find_dim(type, m->batch) : -1;
        if (port.kind != PORT_OUTPUT || !port.of || result_at(f, port) != i)
            return WRONG(m, f->loc, "result %d of @%s must be 'as output(NAME)', with a name of its own", i + 1,
                         f->name);
        if (batch != 0 || type->dim[batch].size != m->train.microbatch || is_half(type->dtype))
            return WRONG(m, f->loc, "@%s returns %%%s : %s, where the micro-batch of f32, i32 or bool comes first",
                         f->name, f->results.at[i]->name, type_text(m, type));
    }
    return true;
}

static bool verify_results(Module *m, const Func *f)
{
    static const PortKind read[N_ROLES][2] = { [MODEL] = { PORT_LOSS },     [EVAL] = { PORT_LOSS },
                                               [UPDATE] = { PORT_PARAM },   [STEP] = { PORT_LOSS, PORT_GRADIENT_NORM },
                                               [PREDICT] = { PORT_LOGITS }, [OUTPUTS] = { PORT_OUTPUT } };
    if (f->role == OUTPUTS && !verify_outputs(m, f))
        return false;
    const bool counts = f->role == TOTALS || f->role == EVAL;
    int scalars = counts ? f->results.count : 0;
    if (f->role == STEP || f->role == MODEL)
        scalars = f->role == STEP ? 2 : 1;
    for (int i = 0; i < 2 && read[f->role][i]; i++)
        if (i >= f->results.count || result_port(f, i).kind != read[f->role][i])
            return WRONG(m, f->loc, "result %d of @%s must be 'as %s'", i + 1, f->name, port_word(read[f->role][i]));
    if (f->results.count < scalars || (f->role == MODEL && f->results.count != 1))
        return WRONG(m, f->loc, "@%s returns %d values, not %d", f->name, f->results.count, scalars);
    for (int i = 0; i < scalars; i++)
        if (!is_float_scalar(f->results.at[i]))
            return WRONG(m, f->loc, "@%s returns %%%s : %s, where one floating-point number is needed", f->name,
                         f->results.at[i]->name, type_text(m, &f->results.at[i]->type));
    return true;
}

/* After the memory pass: arguments of functions are passed as pointers, those of kernels as values. */
static bool verify_places(Module *m, bool placed)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (int i = 0; i < f->params.count && f->role != KERNEL; i++)
            if (!f->params.at[i]->storage == placed)
                return WRONG(m, f->loc, "%%%s of @%s has %s storage, unlike the parameters of the step",
                             f->params.at[i]->name, f->name, placed ? "no" : "a");
    return true;
}

bool verify_model(Module *m)
{
    const Func *model = func_with_role(m, MODEL);
    return verify_taken(m, model) && verify_results(m, model) && verify_totals(m, model);
}

bool verify_program(Module *m)
{
    const Func *model = func_with_role(m, MODEL), *step = func_with_role(m, STEP), *all = model ? model : step;
    if (!verify_train(m) || !verify_inputs(m) || !verify_vocab(m) || !verify_params(m) || !verify_rules(m))
        return false;
    if (!all || (model && step))
        return WRONG(m, m->train_loc, "the module needs one function with the role 'model' or 'step'");
    if (!func_with_role(m, EVAL))
        return WRONG(m, m->train_loc, "the module has no function with the role 'eval'");
    for (const Func *f = m->funcs; f; f = f->next)
        if (f->role != PLAIN && f->role != OPTIMIZE && f->role != KERNEL &&
            !(verify_taken(m, f) && verify_results(m, f)))
            return false;
    for (const Param *param = m->params; param; param = param->next)
        if (!verify_update(m, param))
            return false;
    return verify_all_taken(m, all) && verify_places(m, all->params.at[0]->storage != NULL) &&
           (model ? verify_totals(m, model) : verify_step(m, step));
}
