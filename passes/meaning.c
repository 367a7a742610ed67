/* meaning.c -- a module's programs run through the interpreter, on values that depend on names alone. */
#include "meaning.h"

#include "interp_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a run is fed with. */
typedef struct {
    Module *m;
    double along; /* how far the weights are moved along their random directions; 0 but for slopes */
    int step;     /* 0, and 1 for the second step */
    bool exact;
    Stopped *stopped; /* of the model; NULL but for slopes */
} Run;

static const Numbers *numbers_of(const Run *run) { return run->exact ? &residues : &reals; }

static void note(Module *m, Meaning *meaning, Named named)
{
    if (meaning->count == meaning->room) {
        Named *grown = NEW_ARRAY(&m->arena, Named, meaning->room = meaning->room ? 2 * meaning->room : 64);
        for (int i = 0; i < meaning->count; i++)
            grown[i] = meaning->at[i];
        meaning->at = grown;
    }
    meaning->at[meaning->count++] = named;
}

void forget_meaning(Meaning *meaning)
{
    for (int i = 0; i < meaning->count; i++)
        free_tensors(&meaning->at[i].tensor, 1);
    meaning->count = 0;
}

const Tensor *find_tensor(const Meaning *meaning, const char *name)
{
    for (int i = 0; i < meaning->count; i++)
        if (strcmp(meaning->at[i].name, name) == 0)
            return &meaning->at[i].tensor;
    return NULL;
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* --- What the trainer would put there ------------------------------------------------------------------ */

static double scalar_for(const Run *run, const char *name)
{
    return strcmp(name, "step") == 0         ? 3 + run->step
           : strcmp(name, "key") == 0        ? 12345 + run->step
           : strcmp(name, "lr") == 0         ? 0.01 / (1 + run->step)
           : strcmp(name, "loss_scale") == 0 ? 8
                                             : 0;
}

static Tensor real_for(const Run *run, const Value *param)
{
    const Input *input = find_input(run->m, param->name);
    Tensor tensor;
    if (input) {
        double below = input->vocab ? (double)input->vocab : 2;
        const char *stream = arena_text(&run->m->arena, "tokens.%d.%d", (int)input->shift, run->step);
        return random_tensor(stream, &param->type, 0, below);
    }
    if (param->type.rank == 0 && !find_param(run->m, param->name)) {
        tensor = new_tensor(&param->type);
        tensor.data[0] = scalar_for(run, param->name);
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

/* A tensor for a parameter of a program, by its name. */
static Tensor value_for(const Run *run, const Value *param)
{
    Tensor tensor = real_for(run, param);
    if (run->exact)
        make_exact(&tensor);
    return tensor;
}

/* --- Whole programs ------------------------------------------------------------------------------------ */

static Name kind_of(Module *m, Name name)
{
    static const char *const moments[] = { "m", "v", "momentum" };
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
        if (begins(name, moments[i]) && name[strlen(moments[i])] == '.')
            return intern_text(m, moments[i]);
    return find_param(m, name) ? intern_text(m, "weight") : NULL;
}

/* What a result of a program is called in the meaning; the second step's have an ending. */
static Named name_result(const Run *run, const Func *f, int at, Tensor tensor)
{
    if (f->role == EVAL || f->role == PREDICT)
        return (Named){ intern_text(run->m, f->role == EVAL ? "the loss of evaluation" : "the logits of prediction"),
                        NULL, tensor };
    int nstate = f->results.count - 2;
    Name name = at < 2 ? intern_text(run->m, at ? "grad_norm" : "loss")
                       : f->params.at[f->params.count - nstate + at - 2]->name; /* the state it replaces */
    Name kind = at < 2 ? NULL : kind_of(run->m, name);
    return (Named){ run->step ? intern_format(run->m, "%s of the second step", name) : name, kind, tensor };
}

/* The state that the step before has left behind, and what is fed anew. */
static Tensor argument_for(const Run *run, const Func *f, const Value *param, const Meaning *meaning)
{
    const Tensor *left = f->role == STEP && run->step ? find_tensor(meaning, param->name) : NULL;
    if (!left)
        return value_for(run, param);
    Tensor copy = new_tensor(&param->type);
    memcpy(copy.data, left->data, (size_t)element_count(&param->type) * sizeof *copy.data);
    return copy;
}

/* Runs one program as it stands. */
static bool run_program(const Run *run, const Func *f, Meaning *meaning)
{
    int n = f->params.count;
    Tensor *args = NEW_ARRAY(&run->m->arena, Tensor, n + 1);
    Tensor *results = NEW_ARRAY(&run->m->arena, Tensor, f->results.count + 1);
    for (int i = 0; i < n; i++)
        args[i] = argument_for(run, f, f->params.at[i], meaning);
    RunOptions options = { .exact = run->exact, .placed = n > 0 && f->params.at[0]->storage };
    bool good = interpret_with(run->m, f, args, results, &options);
    for (int i = 0; good && i < f->results.count; i++)
        note(run->m, meaning, name_result(run, f, i, results[i]));
    free_tensors(args, n);
    return good;
}

/* --- The model alone, micro-batch by micro-batch --------------------------------------------------------- */

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
            args[i].data[0] = numbers_of(run)->map(OP_maximum, totals[next++], 1);
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
        good = interpret_with(run->m, f, args, results, &(RunOptions){ .exact = run->exact, .stopped = run->stopped });
        for (int i = 0; good && i < f->results.count; i++)
            sums[i] = numbers_of(run)->add(sums[i], results[i].data[0]);
        free_tensors(args, f->params.count);
        if (good)
            free_tensors(results, f->results.count);
    }
    return good;
}

static bool run_model(const Run *run, double *loss)
{
    const Func *model = func_with_role(run->m, MODEL), *counts = func_with_role(run->m, TOTALS);
    double *totals = NEW_ARRAY(&run->m->arena, double, counts ? counts->results.count : 0);
    *loss = 0;
    if (counts && !sum_over_micros(run, counts, NULL, totals))
        return false;
    return sum_over_micros(run, model, totals, loss);
}

bool find_meaning(Module *m, bool exact, Meaning *meaning)
{
    static const struct {
        FuncRole role;
        int step;
    } runs[] = { { STEP, 0 }, { STEP, 1 }, { EVAL, 0 }, { PREDICT, 0 } };
    bool good = true;
    if (func_with_role(m, MODEL)) {
        Type type = scalar_type(F32);
        Tensor loss = new_tensor(&type);
        good = run_model(&(Run){ .m = m, .exact = exact }, loss.data);
        note(m, meaning, (Named){ intern_text(m, "loss"), NULL, loss });
    }
    for (size_t i = 0; good && i < sizeof runs / sizeof *runs; i++)
        if (func_with_role(m, runs[i].role))
            good = run_program(&(Run){ .m = m, .step = runs[i].step, .exact = exact }, func_with_role(m, runs[i].role),
                               meaning);
    return good;
}

/* --- The gradient against the slope of the loss --------------------------------------------------------- */

static bool run_moved(Module *m, double along, Stopped *stopped, double *loss)
{
    stopped->next = 0;
    bool good = run_model(&(Run){ .m = m, .along = along, .stopped = stopped }, loss);
    stopped->is_known = true;
    return good;
}

/* What stop_gradient gives where the weights are not moved is a constant to the slope. */
bool find_slope(Module *m, double h, double *slope)
{
    Stopped stopped = { 0 };
    double loss, up = 0, down = 0;
    bool good = run_moved(m, 0, &stopped, &loss) && run_moved(m, h, &stopped, &up) && run_moved(m, -h, &stopped, &down);
    *slope = (up - down) / (2 * h);
    free_stopped(&stopped);
    return good;
}

/* A step that began with m = 0 leaves m' = (1 - beta1) * clipped gradient. */
double slope_of_step(Module *m, const Meaning *after)
{
    double sum = 0, norm = find_tensor(after, "grad_norm")->data[0];
    double clipped = m->train.clip > 0 ? fmin(1, m->train.clip / (norm + 1e-6)) : 1;
    for (const Param *param = m->params; param; param = param->next) {
        const Tensor *moment = find_tensor(after, arena_text(&m->arena, "m.%s", param->name));
        Tensor way = random_tensor(arena_text(&m->arena, "along.%s", param->name), &param->type, -1, 1);
        for (int64_t i = 0; moment && i < element_count(&param->type); i++)
            sum += way.data[i] * moment->data[i];
        free(way.data);
    }
    return sum / (1 - m->train.beta1) / clipped;
}

/* --- Comparing ------------------------------------------------------------------------------------------ */

/* What rounding leaves of a gradient that is zero by its mathematics (a key's bias adds the same to all scores of a
 * query) is as large as a few ulps of the terms that cancel, which are of the size of other gradients: 1e-15 of the
 * largest tensor of its kind.  With the tolerance of 1e-9 the size below which all is noise is 1e-6 of that. */
static double size_of_noise(const Meaning *meaning, Name kind)
{
    double largest = 0;
    for (int i = 0; kind && i < meaning->count; i++)
        if (meaning->at[i].kind == kind)
            largest = fmax(largest, root_mean_square(&meaning->at[i].tensor));
    return 1e-6 * largest;
}

bool same_meaning(const Meaning *before, const Meaning *after, bool exact, int *at, Difference *difference)
{
    const double tolerance = exact ? 0 : 1e-9;
    for (*at = 0; *at < after->count; ++*at) {
        const Named *is = &after->at[*at];
        const Tensor *was = find_tensor(before, is->name);
        *difference =
            was ? tensor_difference(was, &is->tensor, exact ? 0 : size_of_noise(before, is->kind)) : (Difference){ 0 };
        if (difference->by > tolerance)
            return false;
    }
    return true;
}
