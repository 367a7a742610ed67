/* verify_passes.c -- does a pass keep the meaning?  A small module is run through the interpreter before and
 * after each pass, on every virtual rank, in double precision, on the same weights, tokens and scalars.
 *
 * A module is summed up as named tensors: the loss of the whole batch, and once there is a step, the norm of the
 * gradient and all state that it leaves behind; the loss of evaluation, the logits of prediction.  What both
 * sides name has to agree.  Where autodiff brings the step, its gradient is compared with the slope
 * of the loss along a random direction.
 */
#include "interp.h"
#include "pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 2048 }; /* named tensors of a module */

typedef struct {
    int count;
    Name name[MOST];
    Tensor tensor[MOST];
} Meaning;

/* How far the weights are moved along their random directions; 0 but for slopes. */
typedef struct {
    Module *m;
    double along;
} Run;

static void note(Meaning *meaning, Name name, Tensor tensor)
{
    if (meaning->count == MOST) {
        free(tensor.data);
        return;
    }
    meaning->name[meaning->count] = name;
    meaning->tensor[meaning->count++] = tensor;
}

static void forget(Meaning *meaning) { free_tensors(meaning->tensor, meaning->count); }

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* What the trainer would put there: a tensor for a parameter of a program, by its name. */
static Tensor value_for(const Run *run, const Value *param)
{
    const Input *input = find_input(run->m, param->name);
    Tensor tensor;
    if (input) {
        double below = input->vocab ? (double)input->vocab : 2;
        return random_tensor(arena_text(&run->m->arena, "tokens.%d", (int)input->shift), &param->type, 0, below);
    }
    if (param->type.rank == 0) {
        tensor = new_tensor(&param->type);
        tensor.data[0] = strcmp(param->name, "step") == 0         ? 3
                         : strcmp(param->name, "key") == 0        ? 12345
                         : strcmp(param->name, "lr") == 0         ? 0.01
                         : strcmp(param->name, "loss_scale") == 0 ? 8
                                                                  : 0;
        return tensor;
    }
    if (begins(param->name, "v.")) /* of squares */
        return random_tensor(param->name, &param->type, 0.5, 1);
    if (begins(param->name, "m.") || begins(param->name, "momentum."))
        return new_tensor(&param->type);
    tensor = random_tensor(param->name, &param->type, -0.5, 0.5);
    Tensor way = random_tensor(arena_text(&run->m->arena, "along.%s", param->name), &param->type, -1, 1);
    for (int64_t i = 0; i < element_count(&param->type); i++)
        tensor.data[i] += run->along * way.data[i];
    free(way.data);
    return tensor;
}

static Name result_name(Module *m, const Func *f, int at)
{
    if (f->role == EVAL || f->role == PREDICT)
        return intern_text(m, f->role == EVAL ? "the loss of evaluation" : "the logits of prediction");
    if (at < 2)
        return intern_text(m, at ? "grad_norm" : "loss");
    int nstate = f->results.count - 2;
    return f->params.at[f->params.count - nstate + at - 2]->name; /* the state it replaces */
}

/* Runs one program as it stands. */
static bool run_program(const Run *run, const Func *f, Meaning *meaning)
{
    int n = f->params.count;
    Tensor *args = NEW_ARRAY(&run->m->arena, Tensor, n + 1);
    Tensor *results = NEW_ARRAY(&run->m->arena, Tensor, f->results.count + 1);
    for (int i = 0; i < n; i++)
        args[i] = value_for(run, f->params.at[i]);
    bool good = interpret(run->m, f, args, results);
    for (int i = 0; good && i < f->results.count; i++)
        note(meaning, result_name(run->m, f, i), results[i]);
    free_tensors(args, n);
    return good;
}

/* One micro-batch out of what the trainer would feed a step. */
static Tensor micro_input(const Run *run, const Value *param, int64_t micro, int64_t micros)
{
    Type whole = param->type;
    if (micros > 1)
        whole = with_dim_first(whole, (Dim){ .name = intern_text(run->m, "micro"), .size = micros, .padded = micros });
    const Value all = { .name = param->name, .type = whole };
    Tensor tokens = value_for(run, &all), part = new_tensor(&param->type);
    int64_t count = element_count(&param->type);
    memcpy(part.data, tokens.data + micro * count, (size_t)count * sizeof *part.data);
    free(tokens.data);
    return part;
}

/* The arguments of the model or of its totals for one micro-batch. */
static void micro_args(const Run *run, const Func *f, int64_t micro, int64_t micros, const double totals[],
                       Tensor args[])
{
    int next = 0;
    for (int i = 0; i < f->params.count; i++) {
        const Value *param = f->params.at[i];
        if (find_input(run->m, param->name)) {
            args[i] = micro_input(run, param, micro, micros);
            continue;
        }
        args[i] = value_for(run, param);
        if (strcmp(param->name, "origin") == 0)
            args[i].data[0] = (double)(micro * run->m->train.microbatch);
        else if (begins(param->name, "total."))
            args[i].data[0] = fmax(1, totals[next++]);
    }
}

/* Adds up the scalar results of f over micro-batches. */
static bool sum_over_micros(const Run *run, const Func *f, const double totals[], double sums[])
{
    int64_t micros = run->m->train.microbatch > 0 ? run->m->train.batch / run->m->train.microbatch : 1;
    Tensor *args = NEW_ARRAY(&run->m->arena, Tensor, f->params.count + 1);
    Tensor *results = NEW_ARRAY(&run->m->arena, Tensor, f->results.count + 1);
    bool good = true;
    for (int64_t micro = 0; good && micro < micros; micro++) {
        micro_args(run, f, micro, micros, totals, args);
        good = interpret(run->m, f, args, results);
        for (int i = 0; good && i < f->results.count; i++)
            sums[i] += results[i].data[0];
        free_tensors(args, f->params.count);
        if (good)
            free_tensors(results, f->results.count);
    }
    return good;
}

static bool run_model(const Run *run, double *loss)
{
    enum { TOTALS_MOST = 16 };
    const Func *model = func_with_role(run->m, MODEL), *counts = func_with_role(run->m, TOTALS);
    double totals[TOTALS_MOST] = { 0 };
    *loss = 0;
    if (counts && (counts->results.count > TOTALS_MOST || !sum_over_micros(run, counts, NULL, totals)))
        return false;
    return sum_over_micros(run, model, totals, loss);
}

static bool find_meaning(Module *m, Meaning *meaning)
{
    static const FuncRole roles[] = { STEP, EVAL, PREDICT };
    Run run = { .m = m };
    bool good = true;
    if (func_with_role(m, MODEL)) {
        Type type = scalar_type(F32);
        Tensor loss = new_tensor(&type);
        good = run_model(&run, loss.data);
        note(meaning, intern_text(m, "loss"), loss);
    }
    for (size_t i = 0; good && i < sizeof roles / sizeof *roles; i++)
        if (func_with_role(m, roles[i]))
            good = run_program(&run, func_with_role(m, roles[i]), meaning);
    return good;
}

static const Tensor *find_tensor(const Meaning *meaning, Name name)
{
    for (int i = 0; i < meaning->count; i++)
        if (meaning->name[i] == name)
            return &meaning->tensor[i];
    return NULL;
}

/* --- The gradient against the slope of the loss ----------------------------------------------------- */

/* (loss(w + h u) - loss(w - h u)) / 2h, for random directions u of all weights. */
static bool find_slope(Module *m, double *slope)
{
    const double h = 1e-5;
    double up, down;
    bool good = run_model(&(Run){ m, h }, &up) && run_model(&(Run){ m, -h }, &down);
    *slope = good ? (up - down) / (2 * h) : 0;
    return good;
}

/* The same from a step of AdamW that began with m = 0: m' = (1 - beta1) * clipped gradient. */
static double slope_of_step(Module *m, const Meaning *after)
{
    double sum = 0, norm = find_tensor(after, intern_text(m, "grad_norm"))->data[0];
    double clipped = m->train.clip > 0 ? fmin(1, m->train.clip / (norm + 1e-6)) : 1;
    for (const Param *param = m->params; param; param = param->next) {
        const Tensor *moment = find_tensor(after, intern_format(m, "m.%s", param->name));
        Tensor way = random_tensor(arena_text(&m->arena, "along.%s", param->name), &param->type, -1, 1);
        for (int64_t i = 0; moment && i < element_count(&param->type); i++)
            sum += way.data[i] * moment->data[i];
        free(way.data);
    }
    return sum / (1 - m->train.beta1) / clipped;
}

/* Central differences lose about h^2 and rounding / h: 1e-6 of the slope is far above both. */
static bool slopes_agree(Module *m, double slope, const Meaning *after, FILE *report)
{
    double gradient = slope_of_step(m, after);
    if (fabs(gradient - slope) <= 1e-6 * (fabs(slope) + 1e-3))
        return true;
    fprintf(report, "mpc: the gradient is wrong: along a random direction it gives %.12g, the loss changes by %.12g\n",
            gradient, slope);
    return false;
}

/* --- Before and after ------------------------------------------------------------------------------ */

static bool same_meaning(const Meaning *before, const Meaning *after, const char *pass, FILE *report)
{
    const double tolerance = 1e-9;
    for (int i = 0; i < after->count; i++) {
        const Tensor *was = find_tensor(before, after->name[i]);
        if (!was)
            continue;
        Difference difference = tensor_difference(was, &after->tensor[i]);
        if (difference.by <= tolerance)
            continue;
        fprintf(report, "mpc: pass '%s' changes the meaning: %s[%lld] was %.17g, is %.17g (relative %.2g)\n", pass,
                after->name[i], (long long)difference.at, difference.a, difference.b, difference.by);
        return false;
    }
    return true;
}

static bool verify_pass(Module *m, const Pass *pass, Meaning *before, FILE *report)
{
    Meaning *after = NEW(&m->arena, Meaning);
    double slope = 0;
    bool differentiates = func_with_role(m, MODEL) && strcmp(m->train.optimizer, "adamw") == 0;
    bool good = !differentiates || strcmp(pass->name, "autodiff") != 0 || find_slope(m, &slope);
    good = good && run_passes(m, &(PassOptions){ .only = pass->name }) && find_meaning(m, after) &&
           same_meaning(before, after, pass->name, report);
    if (good && differentiates && !func_with_role(m, MODEL))
        good = slopes_agree(m, slope, after, report);
    if (good)
        fprintf(report, "%-10s the same in %d tensors\n", pass->name, after->count);
    forget(before);
    *before = *after;
    return good;
}

bool verify_passes(Module *m, const char *only, FILE *report)
{
    Meaning *meaning = NEW(&m->arena, Meaning);
    bool good = find_meaning(m, meaning);
    for (int i = 0; i < npasses && good; i++)
        if (is_listed(only, passes[i].name))
            good = verify_pass(m, &passes[i], meaning, report);
    forget(meaning);
    return good;
}
