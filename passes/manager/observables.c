/* observables.c -- runs the programs of a module through the interpreter and collects their observables. */
#include "observables.h"

#include "interp/interp_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOSS_SCALE = 8 };

/* The inputs of a run. */
typedef struct {
    Module *m;
    int step;       /* 0, and 1 for the second step */
    bool overflows; /* as if gradients were too large: the step is skipped */
    bool exact;
    const Observer *observer; /* of a step; or NULL */
    Name moved;               /* the parameter with a tangent; NULL: none */
    Shaking shaking, moving;  /* of values; of tangents */
    Name *outside;            /* see Observables */
} Run;

static const Numbers *numbers_of(const Run *run) { return run->exact ? &residues : &reals; }

static void note(Module *m, Observables *observables, Observable named)
{
    GROW(&m->arena, observables->at, observables->count, observables->room);
    observables->at[observables->count++] = named;
}

void forget_observables(Observables *observables)
{
    for (int i = 0; i < observables->count; i++)
        free_tensors(&observables->at[i].tensor, 1);
    observables->count = 0;
}

/* or NULL */
static const Tensor *find_tensor(const Observables *observables, const char *name)
{
    for (int i = 0; i < observables->count; i++)
        if (strcmp(observables->at[i].name, name) == 0)
            return &observables->at[i].tensor;
    return NULL;
}

/* --- Values that the trainer would supply -------------------------------------------------------------- */

static double scalar_for(const Run *run, PortKind kind)
{
    switch (kind) {
    case PORT_STEP_NUMBER:
        return 3 + run->step;
    case PORT_DROPOUT_KEY:
        return 12345 + run->step;
    case PORT_LEARNING_RATE:
        return 0.01 / (1 + run->step);
    case PORT_POSITION: {
        const Type *type = &longest_input(run->m)->type; /* [batch, S], or [batch]: of one token */
        return type->rank > 1 ? (double)(type->dim[type->rank - 1].size / 2) : 0;
    }
    case PORT_PENDING:
        return run->step;
    case PORT_LOSS_SCALE:
        return run->overflows ? 1e300 : LOSS_SCALE; /* squares of such gradients overflow doubles */
    case PORT_USUAL_NORM:
        return run->overflows ? 1e-30 : 1;
    case PORT_NORM_STEPS:
        return run->overflows ? 50 : 3;
    default:
        return 0;
    }
}

double loss_scale_of(const Module *m) { return m->train.precision == PRECISION_FP16 ? LOSS_SCALE : 1; }

Tensor direction_of(Module *m, const char *name, const Type *type)
{
    return random_tensor(arena_text(&m->arena, "along.%s", name), type, -1, 1);
}

/* The second name of the dim, as embed.1 of embed, in an optimizer's state; -1: it is there once. */
static int second_of(const Module *m, const Type *type, int dim)
{
    for (int at = 0; at < type->rank; at++) {
        const MadeDim *twin = made_dim(m, type->dim[at].name, MADE_TWIN);
        if (twin && twin->of == type->dim[dim].name)
            return at;
    }
    return -1;
}

/* The same element, with the dims that are there twice exchanged, each with its `second`; `diagonal`: if it is itself.
 */
static int64_t transposed(const Type *type, const int second[], int64_t element, bool *diagonal)
{
    int64_t at[MAX_RANK], other = 0;
    *diagonal = true;
    for (int d = type->rank - 1; d >= 0; d--) {
        at[d] = element % type->dim[d].size;
        element /= type->dim[d].size;
    }
    for (int d = 0; d < type->rank; d++) {
        const int64_t own = at[d];
        if (second[d] < 0)
            continue;
        *diagonal &= own == at[second[d]];
        at[d] = at[second[d]];
        at[second[d]] = own;
    }
    for (int d = 0; d < type->rank; d++)
        other = other * type->dim[d].size + at[d];
    return other;
}

/* State of an optimizer: it may be a mean of squares, and a square matrix a mean of products, which is symmetric, with
 * positive eigenvalues. */
static Tensor optimizer_state(const Module *m, const Value *param)
{
    const Type *type = &param->type;
    Tensor drawn = random_tensor(param->name, type, 0.5, 1), tensor = new_tensor(type);
    double rows = 1;
    bool is_square = false, diagonal;
    int second[MAX_RANK];
    for (int d = 0; d < type->rank; d++)
        if ((second[d] = second_of(m, type, d)) >= 0) {
            rows *= (double)type->dim[d].size;
            is_square = true;
        }
    for (int64_t i = 0; i < element_count(type); i++) {
        const int64_t other = transposed(type, second, i, &diagonal);
        const double beside = (drawn.data[i] + drawn.data[other]) / (8 * rows);
        tensor.data[i] = !is_square ? drawn.data[i] : diagonal ? 1 : beside;
    }
    free_tensors(&drawn, 1);
    return tensor;
}

static Tensor real_for(const Run *run, const Value *param)
{
    const Port port = param->port;
    if (port.kind == PORT_INPUT) {
        const Input *input = find_input(run->m, port.of);
        double below = input->vocab ? (double)input->vocab : 2;
        const char *stream = arena_text(&run->m->arena, "tokens.%d.%d", (int)input->shift, run->step);
        return random_tensor(stream, &param->type, 0, below);
    }
    if (port.kind && !port.of) {
        Tensor tensor = new_tensor(&param->type);
        tensor.data[0] = scalar_for(run, port.kind);
        return tensor;
    }
    if (port.kind == PORT_OPTIMIZER)
        return optimizer_state(run->m, param);
    if (port.kind == PORT_TOTAL) {
        Tensor tensor = new_tensor(&param->type);
        tensor.data[0] = 3;
        return tensor;
    }
    return random_tensor(port.of ? port.of : param->name, &param->type, -0.5, 0.5);
}

/* A tensor for a parameter of a program. */
static Tensor value_for(const Run *run, const Value *param)
{
    Tensor tensor = real_for(run, param);
    if (run->exact)
        make_exact(&tensor);
    return tensor;
}

/* --- Whole programs ------------------------------------------------------------------------------------ */

/* The name of a result in the observables; those of the second step have a suffix. */
static Observable name_result(const Run *run, const Func *f, int at, Tensor tensor)
{
    if (f->role == EVAL && at > 0)
        return (Observable){ intern_format(run->m, "the count of labels %d of evaluation", at), PORT_NONE, tensor, 0 };
    if (f->role == EVAL || f->role == PREDICT)
        return (
            Observable){ intern_text(run->m, f->role == EVAL ? "the loss of evaluation" : "the logits of prediction"),
                         PORT_NONE, tensor, 0 };
    if (f->role == OUTPUTS)
        return (Observable){ intern_format(run->m, "the output %s", result_port(f, at).of), PORT_NONE, tensor, 0 };
    const int old = state_replaced(f, at);
    const Value *before = old < 0 ? NULL : f->params.at[old];
    const Port port = result_port(f, at);
    Name name = before    ? before->name
                : port.of ? intern_format(run->m, "%s of %s", port_word(port.kind), port.of)
                          : intern_text(run->m, at ? "the gradient norm" : "loss");
    const PortKind kind = before && before->port.of ? before->port.kind : PORT_NONE;
    if (run->overflows)
        return (Observable){ intern_format(run->m, "%s after an overflow", name), kind, tensor, 0 };
    return (Observable){ run->step ? intern_format(run->m, "%s of the second step", name) : name, kind, tensor, 0 };
}

/* The name of the state that a step has left to the next one, if its update waits: the observable is the state after
 * the update. */
static Name before_update(const Run *run, Name name)
{
    return func_with_role(run->m, FINISH) ? intern_format(run->m, "%s before the update", name) : name;
}

/* State from the previous step, or a new input. */
static Tensor argument_for(const Run *run, const Func *f, const Value *param, const Observables *observables)
{
    const bool is_second = f->role == STEP && run->step;
    const Tensor *left = is_second ? find_tensor(observables, before_update(run, param->name)) : NULL;
    if (!left)
        return value_for(run, param);
    Tensor copy = new_tensor(&param->type);
    memcpy(copy.data, left->data, (size_t)element_count(&param->type) * sizeof *copy.data);
    return copy;
}

/* The change of a weight by a step: it shows a wrong gradient that is small compared with the weight. */
static void note_change(const Run *run, const Tensor *before, const Observable *after, Observables *observables)
{
    Tensor change = new_tensor(&after->tensor.type);
    for (int64_t i = 0; i < element_count(&change.type); i++)
        change.data[i] = after->tensor.data[i] - before->data[i];
    Name name = intern_format(run->m, "the change of %s", after->name);
    note(run->m, observables, (Observable){ name, PORT_NONE, change, 1e-5 * root_mean_square(before) });
}

/* The weight that the i-th result of the step replaces: after the update of the step before. */
static const Tensor *weight_before(const Run *run, const Func *f, int i, const Tensor *args,
                                   const Observables *observables)
{
    const int at = state_replaced(f, i);
    return run->step ? find_tensor(observables, f->params.at[at]->name) : &args[at];
}

static RunOptions options_for(const Run *run, const Func *f)
{
    return (RunOptions){ .exact = run->exact,
                         .placed = f->params.count > 0 && f->params.at[0]->storage,
                         .observer = run->observer,
                         .outside = run->outside,
                         .shaking = run->shaking };
}

/* Makes the update that a step has left, in `results`, the state of which is also kept as it is. */
static bool finish_step(const Run *run, const Func *step, Tensor *results, Observables *observables)
{
    const Func *finish = func_with_role(run->m, FINISH);
    if (!finish || step->role != STEP)
        return true;
    const int count = finish->params.count;
    Tensor *state = results + step->results.count - count, *after = NEW_ARRAY(&run->m->arena, Tensor, count + 1);
    const RunOptions options = options_for(run, finish);
    const bool good = interpret_with(run->m, finish, state, after, &options);
    for (int i = 0; good && i < count; i++) {
        const char *kept = before_update(run, finish->params.at[i]->name);
        if (run->step || run->overflows)
            free_tensors(&state[i], 1);
        else
            note(run->m, observables, (Observable){ kept, PORT_NONE, state[i], 0 });
        state[i] = after[i];
    }
    return good;
}

/* Reads what the step before the first one would have read for it. */
static bool begin_step(const Run *run, const Func *step, Tensor *args)
{
    const Func *begin = step->role == STEP && !run->step ? func_with_role(run->m, BEGIN) : NULL;
    if (!begin)
        return true;
    const int count = begin->params.count;
    int *at = NEW_ARRAY(&run->m->arena, int, count + 1);
    Tensor *state = NEW_ARRAY(&run->m->arena, Tensor, count + 1), *after = NEW_ARRAY(&run->m->arena, Tensor, count + 1);
    for (int i = 0; i < count; i++) {
        at[i] = index_of(&step->params, param_with(step, begin->params.at[i]->port));
        state[i] = args[at[i]];
    }
    const RunOptions options = options_for(run, begin);
    const bool good = interpret_with(run->m, begin, state, after, &options);
    for (int i = 0; good && i < count; i++) {
        free_tensors(&state[i], 1);
        args[at[i]] = after[i];
    }
    return good;
}

/* Runs one program as it stands. */
static bool run_program(const Run *run, const Func *f, Observables *observables)
{
    int n = f->params.count;
    Tensor *args = NEW_ARRAY(&run->m->arena, Tensor, n + 1);
    Tensor *results = NEW_ARRAY(&run->m->arena, Tensor, f->results.count + 1);
    for (int i = 0; i < n; i++)
        args[i] = argument_for(run, f, f->params.at[i], observables);
    const RunOptions options = options_for(run, f);
    bool good = begin_step(run, f, args) && interpret_with(run->m, f, args, results, &options) &&
                finish_step(run, f, results, observables);
    for (int i = 0; good && i < f->results.count; i++) {
        if (run->overflows && i < 2) { /* of the norm only whether it is finite */
            free_tensors(&results[i], 1);
            continue;
        }
        Observable named = name_result(run, f, i, results[i]);
        note(run->m, observables, named);
        if (!run->exact && !run->overflows && named.kind == PORT_PARAM) /* residues are equal or not */
            note_change(run, weight_before(run, f, i, args, observables), &named, observables);
    }
    free_tensors(args, n);
    return good;
}

/* --- The model alone, micro-batch by micro-batch --------------------------------------------------------- */

/* One micro-batch of the inputs of a step. */
static Tensor micro_input(const Run *run, const Value *param, int64_t micro, int64_t micros)
{
    Type whole = param->type;
    if (micros > 1)
        whole =
            with_dim_first(whole, (Dim){ .name = intern_text(run->m, "micro.step"), .size = micros, .padded = micros });
    const Value all = { .name = param->name, .type = whole, .port = param->port };
    Tensor tokens = value_for(run, &all), part = new_tensor(&param->type);
    int64_t count = element_count(&param->type);
    memcpy(part.data, tokens.data + micro * count, (size_t)count * sizeof *part.data);
    free(tokens.data);
    return part;
}

/* What the step divides by, see find_totals() in training/step.c.  The residue of 0 is 0, too. */
static double divisor_of(double total) { return total == 0 ? 1 : total; }

/* The arguments of the model or of its totals for one micro-batch. */
static void micro_args(const Run *run, const Func *f, int64_t micro, int64_t micros, const double totals[],
                       Tensor args[])
{
    const Func *counts = func_with_role(run->m, TOTALS);
    for (int i = 0; i < f->params.count; i++) {
        const Value *param = f->params.at[i];
        if (param->port.kind == PORT_INPUT) {
            args[i] = micro_input(run, param, micro, micros);
            continue;
        }
        args[i] = value_for(run, param);
        if (param->port.kind == PORT_ORIGIN)
            args[i].data[0] = (double)(micro * run->m->train.microbatch);
        else if (param->port.kind == PORT_TOTAL)
            args[i].data[0] = divisor_of(totals[result_at(counts, param->port)]);
    }
}

/* The tangent of each parameter of f. */
static Tensor *directions(const Run *run, const Func *f)
{
    Tensor *ways = NEW_ARRAY(&run->m->arena, Tensor, f->params.count + 1);
    for (int i = 0; i < f->params.count; i++)
        if (same_port(f->params.at[i]->port, (Port){ .kind = PORT_PARAM, .of = run->moved }))
            ways[i] = direction_of(run->m, run->moved, &f->params.at[i]->type);
    return ways;
}

/* Sums the scalar results of f over micro-batches, and their tangents. */
static bool sum_over_micros(const Run *run, const Func *f, const double totals[], double sums[], double moves[])
{
    int64_t micros = run->m->train.microbatch > 0 ? run->m->train.batch / run->m->train.microbatch : 1;
    Tensor *args = NEW_ARRAY(&run->m->arena, Tensor, f->params.count + 1), *ways = directions(run, f);
    Tensor *results = NEW_ARRAY(&run->m->arena, Tensor, f->results.count + 1);
    Tensor *moved = NEW_ARRAY(&run->m->arena, Tensor, f->results.count + 1);
    Tangents tangents = { ways, moved, run->moving };
    bool good = true;
    for (int64_t micro = 0; good && micro < micros; micro++) {
        micro_args(run, f, micro, micros, totals, args);
        const RunOptions options = { .exact = run->exact,
                                     .tangents = run->moved ? &tangents : NULL,
                                     .outside = run->outside,
                                     .shaking = run->shaking };
        good = interpret_with(run->m, f, args, results, &options);
        for (int i = 0; good && i < f->results.count; i++) {
            sums[i] = numbers_of(run)->add(sums[i], results[i].data[0]);
            moves[i] += moved[i].data ? moved[i].data[0] : 0;
        }
        free_tensors(args, f->params.count);
        if (good) {
            free_tensors(results, f->results.count);
            free_tensors(moved, f->results.count);
        }
    }
    free_tensors(ways, f->params.count);
    return good;
}

static bool run_model(const Run *run, double *loss, double *slope)
{
    const Func *model = func_with_role(run->m, MODEL), *counts = func_with_role(run->m, TOTALS);
    int ncounts = counts ? counts->results.count : 0;
    double *totals = NEW_ARRAY(&run->m->arena, double, ncounts), *moves = NEW_ARRAY(&run->m->arena, double, ncounts);
    Run still = *run;
    still.moved = NULL;
    *loss = *slope = 0;
    if (counts && !sum_over_micros(&still, counts, NULL, totals, moves))
        return false;
    return sum_over_micros(run, model, totals, loss, slope);
}

bool find_slope(Module *m, const char *param, const Shaking *shaking, double *slope)
{
    double loss;
    return run_model(&(Run){ .m = m, .moved = intern_text(m, param), .moving = *shaking }, &loss, slope);
}

bool watch_step(Module *m, const Observer *observer)
{
    Observables unread = { 0 };
    bool good = run_program(&(Run){ .m = m, .observer = observer }, func_with_role(m, STEP), &unread);
    forget_observables(&unread);
    return good;
}

static bool note_loss(const Run *run, Observables *observables)
{
    Type type = scalar_type(F32);
    Tensor loss = new_tensor(&type);
    double slope;
    bool good = run_model(run, loss.data, &slope);
    note(run->m, observables,
         (Observable){ intern_text(run->m, run->step ? "the loss of other tokens" : "loss"), PORT_NONE, loss, 0 });
    return good;
}

static bool may_skip(const Module *m) { return loss_scale_of(m) != 1 || m->train.skip_spikes > 0; }

static bool find_all(Module *m, bool exact, Shaking shaking, Observables *observables)
{
    static const struct {
        FuncRole role;
        int step;
        bool overflows;
    } runs[] = { { STEP, 0, false }, { STEP, 1, false },    { STEP, 0, true },
                 { EVAL, 0, false }, { PREDICT, 0, false }, { OUTPUTS, 0, false } };
    bool good = true;
    for (int step = 0; good && step < 2 && func_with_role(m, MODEL); step++) /* with the tokens of both */
        good = note_loss(
            &(Run){ .m = m, .step = step, .exact = exact, .shaking = shaking, .outside = &observables->outside },
            observables);
    for (size_t i = 0; good && i < sizeof runs / sizeof *runs; i++)
        if (func_with_role(m, runs[i].role) && (!runs[i].overflows || (may_skip(m) && !exact)))
            good = run_program(&(Run){ .m = m,
                                       .step = runs[i].step,
                                       .overflows = runs[i].overflows,
                                       .exact = exact,
                                       .outside = &observables->outside,
                                       .shaking = shaking },
                               func_with_role(m, runs[i].role), observables);
    return good;
}

bool find_observables(Module *m, bool exact, Observables *observables)
{
    return find_all(m, exact, (Shaking){ 0 }, observables);
}

/* --- Comparing ------------------------------------------------------------------------------------------ */

/* A result that is mathematically zero (the gradient of a bias of keys, which adds the same number to all scores of a
 * query; the mean of a norm) has a rounding error of a few ulps of the cancelling terms, which have the size of other
 * gradients: 1e-15 of the largest tensor of its kind, or of 1 if all are tiny, since weights and data have about that
 * size.  A norm of nearly equal numbers magnifies such an error by 1 / sqrt(eps), 316 for the usual 1e-5.  With a
 * tolerance of 1e-9, values below 1e-3 of that size are noise. */
static double size_of_noise(const Observables *observables, PortKind kind)
{
    double largest = 1;
    for (int i = 0; kind && i < observables->count; i++)
        if (observables->at[i].kind == kind)
            largest = fmax(largest, root_mean_square(&observables->at[i].tensor));
    return 1e-3 * largest;
}

static bool find_shaken(Module *m, Observables shaken[SHAKINGS])
{
    bool good = true;
    for (int i = 0; i < SHAKINGS && good; i++)
        good = find_all(m, false, (Shaking){ SHAKEN_BY, (uint64_t)i + 1 }, &shaken[i]);
    return good;
}

static double rounding_of(const Observable *named, const Observables shaken[SHAKINGS], double noise)
{
    double most = 0;
    for (int i = 0; i < SHAKINGS; i++) {
        const Tensor *other = find_tensor(&shaken[i], named->name);
        if (other)
            most = fmax(most, rounding_after(tensor_difference(&named->tensor, other, noise).by));
    }
    return most;
}

bool same_observables(Module *m, const Observables *before, const Observables *after, bool exact, int *at,
                      Difference *difference)
{
    const double tolerance = exact ? 0 : 1e-9, most_rounding = 1e-6;
    Observables shaken[SHAKINGS] = { 0 };
    bool same = true;
    for (*at = 0; *at < after->count; ++*at) {
        const Observable *is = &after->at[*at];
        const Tensor *was = find_tensor(before, is->name);
        const double noise = exact ? 0 : fmax(is->noise, size_of_noise(before, is->kind));
        *difference = was ? tensor_difference(was, &is->tensor, noise) : (Difference){ 0 };
        if (difference->by <= tolerance)
            continue;
        same = !exact && difference->by <= most_rounding && (shaken[0].count || find_shaken(m, shaken)) &&
               difference->by <= rounding_of(is, shaken, noise);
        if (!same)
            break;
    }
    for (int i = 0; i < SHAKINGS; i++)
        forget_observables(&shaken[i]);
    return same;
}
