/* tiny.c -- a handwritten trainer for tests of the runtime: logits = bias + sum over copies c of w_c[token], SGD with
 * momentum, in plain loops.  Its tensors have padding, copies, and another order in memory.
 *
 * Environment: TINY_BAD_STEP=n a loss of NaN at step n (from 0); TINY_BAD_NORM=n an infinite norm; TINY_SLEEP_MS=n each
 * step takes longer, TINY_EVAL_MS=n each call of an evaluation; TINY_EVAL_CALLS=FILE a byte for each of these;
 * TINY_CREATE_MS=n, TINY_CREATED=FILE likewise of the start; TINY_DUMP=FILE inputs and scalars of each step;
 * TINY_LARGE=1 a large tensor, too; TINY_ARENA=bytes the plan; TINY_VOCAB=n, TINY_SCHEDULE=constant, TINY_NO_PREDICT,
 * TINY_SEED=n change the program's tables. */
#include "rt.h"
#include "state.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <omp.h>

enum { COPIES = 2, VOCAB = 256, PADDED = 264, MICRO = 2, BATCH = 2, SEQ = 8, EVAL_BATCH = 2, ROWS = 5, COLUMNS = 3 };
enum { SEQUENCES = MICRO * BATCH, LARGE = 100000, PAGE = 4096 };
enum { MARK = 12345 }; /* the value of padding, to check that no file contains it */

/* The arena.  `mixed` is logically [copy, row, column], in memory [column, copy, row + 1]. */
typedef struct {
    _Alignas(PAGE) float large[LARGE]; /* in the file as here, and larger than what is written through a buffer */
    float w[COPIES][VOCAB][PADDED], bias[PADDED], mixed[COLUMNS][COPIES][ROWS + 1];
    float momentum_w[COPIES][VOCAB][PADDED], momentum_bias[PADDED];
    uint16_t half[8], brain[8];
    int32_t good_steps;
    int32_t tokens[SEQUENCES * SEQ], labels[SEQUENCES * SEQ];
    int32_t eval_tokens[EVAL_BATCH * SEQ], eval_labels[EVAL_BATCH * SEQ];
    int32_t predict_tokens[SEQ];
    int32_t step, key;
    float lr, loss, norm, eval_loss;
    int32_t position;
    float logits[PADDED];
} Arena;

#define AT(field) offsetof(Arena, field)

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* Copy 1 is dropped by a bit of the key, so that losses depend on key and step. */
static void logits_of(const Arena *a, int token, int keep, float *logits)
{
    for (int v = 0; v < VOCAB; v++)
        logits[v] = a->bias[v] + a->w[0][token][v] + (keep ? a->w[1][token][v] : 0) + 0.01f * a->mixed[v % 3][1][0];
}

/* -log softmax at the label; logits become the gradient. */
static float cross_entropy(float *logits, int label)
{
    float most = -INFINITY, sum = 0;
    for (int v = 0; v < VOCAB; v++)
        most = fmaxf(most, logits[v]);
    for (int v = 0; v < VOCAB; v++)
        sum += expf(logits[v] - most);
    float loss = logf(sum) + most - logits[label];
    for (int v = 0; v < VOCAB; v++)
        logits[v] = expf(logits[v] - most) / sum - (v == label);
    return loss;
}

static void update(float *weight, float *momentum, float gradient, float lr)
{
    *momentum = 0.9f * *momentum + gradient;
    *weight -= lr * *momentum;
}

static void train_token(Arena *a, int i)
{
    int token = a->tokens[i], label = a->labels[i], keep = a->key >> i % 31 & 1;
    float gradient[VOCAB], scale = 1.0f / (SEQUENCES * SEQ);
    logits_of(a, token, keep, gradient);
    a->loss += scale * cross_entropy(gradient, label);
    for (int v = 0; v < VOCAB; v++) {
        update(&a->bias[v], &a->momentum_bias[v], gradient[v], a->lr);
        for (int c = 0; c <= keep; c++)
            update(&a->w[c][token][v], &a->momentum_w[c][token][v], gradient[v], a->lr);
        a->norm += gradient[v] * gradient[v];
    }
}

static void dump(const Arena *a)
{
    FILE *file = getenv("TINY_DUMP") ? fopen(getenv("TINY_DUMP"), "ab") : NULL;
    if (!file)
        return;
    fwrite(a->tokens, sizeof a->tokens, 1, file);
    fwrite(a->labels, sizeof a->labels, 1, file);
    fwrite(&a->step, 4, 1, file);
    fwrite(&a->key, 4, 1, file);
    fwrite(&a->lr, 4, 1, file);
    int32_t threads = omp_get_max_threads();
    fwrite(&threads, 4, 1, file);
    fclose(file);
}

static void train_tokens(Rt *rt, Arena *a)
{
    for (int i = 0; i < SEQUENCES * SEQ; i++)
        RT_RUN(rt, 0, train_token(a, i));
}

static void mark_call(const char *variable)
{
    FILE *calls = getenv(variable) ? fopen(getenv(variable), "ab") : NULL;
    if (calls && (fputc('.', calls) == EOF || fclose(calls)))
        abort();
}

/* A signal does not shorten it. */
static void pause_for(const char *variable)
{
    const long ms = number_of(variable, 0);
    struct timespec pause = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&pause, &pause))
        continue;
}

static void create(Rt *rt)
{
    mark_call("TINY_CREATED");
    pause_for("TINY_CREATE_MS");
}

static void step(Rt *rt, char *arena)
{
    Arena *a = (Arena *)(void *)arena;
    dump(a);
    pause_for("TINY_SLEEP_MS");
    rt_state_changes(rt);
    a->loss = a->norm = 0;
    RT_RUN(rt, 1, train_tokens(rt, a));
    a->norm = sqrtf(a->norm);
    a->good_steps++;
    for (int i = 0; i < LARGE; i++)
        a->large[i] += (float)i;
    a->w[0][0][VOCAB] = a->mixed[0][0][ROWS] = MARK;
    if (a->step == number_of("TINY_BAD_STEP", -1))
        a->loss = NAN;
    if (a->step == number_of("TINY_BAD_NORM", -1))
        a->norm = INFINITY;
}

static void evaluate(Rt *rt, char *arena)
{
    Arena *a = (Arena *)(void *)arena;
    float logits[VOCAB];
    mark_call("TINY_EVAL_CALLS");
    pause_for("TINY_EVAL_MS");
    a->eval_loss = 0;
    for (int i = 0; i < EVAL_BATCH * SEQ; i++) {
        logits_of(a, a->eval_tokens[i], 1, logits);
        a->eval_loss += cross_entropy(logits, a->eval_labels[i]) / (SEQUENCES * SEQ);
    }
}

static void predict(Rt *rt, char *arena)
{
    Arena *a = (Arena *)(void *)arena;
    logits_of(a, a->predict_tokens[a->position], 1, a->logits);
}

#define SIZES(...) .size = { __VA_ARGS__ }, .padded = { __VA_ARGS__ }
#define W                                                                                                              \
    .name = "h.*.w", .type = RT_F32, .rank = 3, .copies = 1, .dim = { "copy", "token", "vocab" },                      \
    SIZES(COPIES, VOCAB, VOCAB), .stride = { VOCAB * PADDED, PADDED, 1 },                                              \
    .stored_bytes = (int64_t)sizeof(float) * COPIES * VOCAB * PADDED
#define BIAS                                                                                                           \
    .name = "bias", .type = RT_F32, .rank = 1, .dim = { "vocab" }, SIZES(VOCAB), .stride = { 1 },                      \
    .stored_bytes = (int64_t)sizeof(float) * PADDED
static const RtTensor tensors[] = {
    { .name = "large",
      .type = RT_F32,
      .rank = 1,
      .dim = { "x" },
      SIZES(LARGE),
      .stride = { 1 },
      .offset = AT(large),
      .stored_bytes = (int64_t)sizeof(float) * LARGE,
      .init = { RT_NORMAL, 1, 0 } },
    { W, .offset = AT(w), .init = { RT_NORMAL, 0.5, 0 } },
    { BIAS, .offset = AT(bias) },
    { .name = "h.*.mixed",
      .type = RT_F32,
      .rank = 3,
      .copies = 1,
      .dim = { "copy", "row", "column" },
      SIZES(COPIES, ROWS, COLUMNS),
      .stride = { ROWS + 1, 1, COPIES *(ROWS + 1) },
      .offset = AT(mixed),
      .stored_bytes = (int64_t)sizeof(float) * COLUMNS * COPIES * (ROWS + 1),
      .init = { RT_UNIFORM, -1, 3 } },
    { .name = "half",
      .type = RT_F16,
      .rank = 1,
      .dim = { "x" },
      SIZES(7),
      .stride = { 1 },
      .offset = AT(half),
      .stored_bytes = 16,
      .init = { RT_NORMAL, 1, 0 } },
    { .name = "brain",
      .type = RT_BF16,
      .rank = 1,
      .dim = { "x" },
      SIZES(7),
      .stride = { 1 },
      .offset = AT(brain),
      .stored_bytes = 16,
      .init = { RT_CONSTANT, 0.7, 0 } },
    { W, .state = "momentum", .offset = AT(momentum_w) },
    { BIAS, .state = "momentum", .offset = AT(momentum_bias) },
    { .state = "good_steps",
      .type = RT_I32,
      .offset = AT(good_steps),
      .stored_bytes = 4,
      .init = { RT_CONSTANT, 3, 0 } },
};

static const RtKernel kernels[] = {
    { "token", "tiny.mdl:3:5", "fused", 4.0 * VOCAB, 8.0 * VOCAB },
    { "all \"tokens\"", "tiny.mdl:2:1", "loop", 0, 0 },
};

#define INPUT(path, at, by, below)                                                                                     \
    {                                                                                                                  \
        .name = (path), .of = "tokens", .type = RT_I32, .offset = (at), .shift = (by), .vocab = (below), .rank = 1,    \
        .dim = {                                                                                                       \
            { SEQ, SEQ, { 0 } }                                                                                        \
        }                                                                                                              \
    }
static const RtInput step_inputs[] = { INPUT("tokens", AT(tokens), 0, VOCAB), INPUT("labels", AT(labels), 1, 0) };
static const RtInput eval_inputs[] = { INPUT("tokens", AT(eval_tokens), 0, VOCAB),
                                       INPUT("labels", AT(eval_labels), 1, 0) };
static const RtInput predict_inputs[] = { INPUT("tokens", AT(predict_tokens), 0, VOCAB) };

int main(int argc, char **argv)
{
    RtProgram program = {
        .name = "tiny",
        .source = "tiny.mdl",
        .tensors = tensors + !getenv("TINY_LARGE"),
        .ntensors = sizeof tensors / sizeof *tensors - !getenv("TINY_LARGE"),
        .kernels = kernels,
        .nkernels = sizeof kernels / sizeof *kernels,
        .arena_bytes = number_of("TINY_ARENA", sizeof(Arena)),
        .state_bytes = AT(tokens),
        .flops_per_step = 1e6,
        .tokens_per_step = SEQUENCES * SEQ,
        .vocab = number_of("TINY_VOCAB", VOCAB),
        .schedule = { RT_COSINE, 0.5, 0.05, 3, 20, 0 },
        .seed = number_of("TINY_SEED", 42),
        .precision = "fp32",
        .optimizer = getenv("TINY_OPTIMIZER"),
        .is_causal_lm = true,
        .step = { step,
                  step_inputs,
                  2,
                  NULL,
                  { AT(step), AT(lr), -1, -1, AT(key), AT(loss), AT(norm), -1, -1 },
                  MICRO,
                  BATCH,
                  SEQ,
                  -1,
                  NULL,
                  0 },
        .eval = { evaluate,
                  eval_inputs,
                  2,
                  NULL,
                  { -1, -1, -1, -1, -1, AT(eval_loss), -1, -1, -1 },
                  1,
                  EVAL_BATCH,
                  SEQ,
                  -1,
                  NULL,
                  0 },
        .predict = { predict,
                     predict_inputs,
                     1,
                     NULL,
                     { -1, -1, -1, AT(position), -1, -1, -1, -1, -1 },
                     1,
                     1,
                     SEQ,
                     AT(logits),
                     NULL,
                     0,
                     .choices = VOCAB },
        .create = create,
        .plan = "{\"model\": \"tiny\"}",
    };
    if (getenv("TINY_SCHEDULE"))
        program.schedule = (RtSchedule){ .kind = RT_CONSTANT_LR, .lr = 0.5 };
    if (getenv("TINY_NO_PREDICT"))
        program.predict.run = NULL;
    return rt_main(argc, argv, &program);
}

/* In place of product.c: this trainer has no products. */
void rt_libraries_choose(Rt *rt) {}
void rt_products_free(Rt *rt) {}
int64_t rt_libraries_workspace_bytes(const Rt *rt) { return 1000; }
double rt_product_peak(Rt *rt, double seconds) { return 1e9; }
void rt_product_create(Rt *rt, int id, RtProductShape shape) {}
void rt_product(Rt *rt, int id, const void *a, const void *b, void *c) {}
