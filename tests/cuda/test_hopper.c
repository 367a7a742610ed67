/* test_hopper.c -- runtime/cuda/attend_hopper.cuh on the emulator: y and the logarithms of sums are those of double
 * precision, and nothing else is read or written.
 *
 *   test_hopper LIBRARY [CASE]     of hopper_kernels.cpp */
#include "convert.h"
#include "emulator/emulator.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUERIES = 128, THREADS = 384, GAP = 256, ROWS = 64, MOST_FEATURES = 256, BOX = 64 };
typedef enum { bf16, f16 } Type;

typedef struct {
    const char *name;
    Type type;
    int feature, batch, queries, keys, heads, group;
    bool is_packed, causal;
    int window;
    float scale;
} Case;

static const Case cases[] = {
#define CASE(name, ...) { #name, __VA_ARGS__ },
#include "hopper_cases.def"
#undef CASE
};

/* [batch, rows, heads, features], in rows of `row` elements. */
typedef struct {
    uint16_t *at;
    int rows, heads, row;
} Tensor;

typedef struct {
    const Case *is;
    Tensor q, k, v, y;
    float *lse;
    char *memory;
    int64_t bytes;
} Test;

static float value(const Test *t, const Tensor *x, int b, int row, int head, int i)
{
    const uint16_t bits = x->at[((int64_t)b * x->rows + row) * x->row + head * t->is->feature + i];
    return t->is->type == bf16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
}

/* --- The reference ------------------------------------------------------------------------------ */

static bool sees(const Case *c, int query, int key)
{
    return !(c->causal && key > query) && (c->window == 0 || abs(key - query) < c->window);
}

/* y of a query, how far its terms are from 0, as the root of the sum of their squares, and the logarithm of the sum. */
static double attend(const Test *t, int b, int query, int head, double y[MOST_FEATURES], double size[MOST_FEATURES])
{
    const Case *c = t->is;
    double *score = malloc((size_t)c->keys * sizeof *score), most = -INFINITY, total = 0;
    for (int key = 0; key < c->keys; key++) {
        double sum = 0;
        for (int i = 0; i < c->feature; i++)
            sum += (double)value(t, &t->q, b, query, head, i) * (double)value(t, &t->k, b, key, head / c->group, i);
        score[key] = sees(c, query, key) ? sum * (double)c->scale : -INFINITY;
        most = fmax(most, score[key]);
    }
    for (int key = 0; key < c->keys && most > -INFINITY; key++)
        total += exp(score[key] - most);
    for (int i = 0; i < c->feature; i++)
        y[i] = size[i] = 0;
    for (int key = 0; key < c->keys && total > 0; key++)
        for (int i = 0; i < c->feature; i++) {
            const double term = exp(score[key] - most) / total * (double)value(t, &t->v, b, key, head / c->group, i);
            y[i] += term;
            size[i] += term * term;
        }
    free(score);
    return total > 0 ? most + log(total) : -INFINITY;
}

/* The type rounds each weight and the result by `unit` of it at most; those of weights are random. */
static bool is_right(const Test *t, int b, int query, int head)
{
    const Case *c = t->is;
    double y[MOST_FEATURES], size[MOST_FEATURES];
    const double sum = attend(t, b, query, head, y, size), unit = c->type == bf16 ? 0x1p-8 : 0x1p-11;
    const double found_sum = (double)t->lse[((int64_t)b * t->q.heads + head) * c->queries + query];
    if (!(found_sum == sum || fabs(found_sum - sum) <= 0x1p-18 * (1 + fabs(sum)))) {
        printf("%s: sequence %d, query %d, head %d: log-sum-exp is %g, not %g\n", c->name, b, query, head, found_sum,
               sum);
        return false;
    }
    for (int i = 0; i < c->feature; i++) {
        const double found = (double)value(t, &t->y, b, query, head, i);
        if (!(fabs(found - y[i]) <= unit * (fabs(y[i]) + 2 * sqrt(size[i])) + 0x1p-24)) {
            printf("%s: sequence %d, query %d, head %d, feature %d is %g, not %g\n", c->name, b, query, head, i, found,
                   y[i]);
            return false;
        }
    }
    return true;
}

/* --- One case ------------------------------------------------------------------------------------ */

static Tensor tensor_at(char *memory, int64_t elements, int rows, int heads, int row)
{
    return (Tensor){ (uint16_t *)(void *)memory + elements, rows, heads, row };
}

static int64_t with_gap(int64_t bytes) { return (bytes + 2 * GAP - 1) / GAP * GAP; }

/* Memory with a gap behind each tensor. */
static void open_test(Test *t, const Case *c)
{
    const int heads = c->heads * c->group, row = heads * c->feature, key_row = c->heads * c->feature;
    const int whole = row + 2 * key_row;
    *t = (Test){ .is = c };
    const int64_t operands = c->is_packed ? with_gap((int64_t)c->batch * c->queries * whole * 2)
                                          : with_gap((int64_t)c->batch * c->queries * row * 2) +
                                                2 * with_gap((int64_t)c->batch * c->keys * key_row * 2);
    const int64_t results = with_gap((int64_t)c->batch * c->queries * row * 2),
                  sums = with_gap((int64_t)c->batch * heads * c->queries * 4);
    t->bytes = operands + results + sums + GAP;
    t->memory = aligned_alloc(GAP, (size_t)t->bytes);
    char *at = t->memory + GAP;
    if (c->is_packed) {
        t->q = tensor_at(at, 0, c->queries, heads, whole);
        t->k = tensor_at(at, row, c->keys, c->heads, whole);
        t->v = tensor_at(at, row + key_row, c->keys, c->heads, whole);
    } else {
        const int64_t keys = with_gap((int64_t)c->batch * c->keys * key_row * 2);
        t->q = tensor_at(at, 0, c->queries, heads, row);
        t->k = tensor_at(at + operands - 2 * keys, 0, c->keys, c->heads, key_row);
        t->v = tensor_at(at + operands - keys, 0, c->keys, c->heads, key_row);
    }
    t->y = tensor_at(at + operands, 0, c->queries, heads, row);
    t->lse = (float *)(void *)(at + operands + results);
}

static void fill(const Test *t)
{
    const int64_t count = (int64_t)((char *)t->y.at - t->memory) / 2;
    for (int64_t i = GAP / 2; i < count; i++) {
        const float x = (float)rand() / (float)RAND_MAX * 2 - 1;
        ((uint16_t *)(void *)t->memory)[i] = t->is->type == bf16 ? rt_bf16_of_float(x) : rt_f16_of_float(x);
    }
}

/* Only the features of its heads belong to a tensor. */
static void allow(const Test *t, const Tensor *x, bool is_written)
{
    for (int64_t row = 0; row < (int64_t)t->is->batch * x->rows; row++)
        emulator_allow(x->at + row * x->row, (int64_t)x->heads * t->is->feature * 2, is_written);
}

typedef struct {
    _Alignas(64) char bits[EMULATOR_MAP_BYTES];
} TensorMap;

static TensorMap map_of(const Test *t, const Tensor *x, int box)
{
    TensorMap map;
    const uint64_t feature = (uint64_t)t->is->feature;
    const uint64_t size[] = { feature, (uint64_t)x->rows, (uint64_t)x->heads, (uint64_t)t->is->batch };
    const uint64_t stride[] = { (uint64_t)x->row * 2, feature * 2, (uint64_t)x->rows * (uint64_t)x->row * 2 };
    const uint32_t boxes[] = { BOX, (uint32_t)box, 1, 1 };
    if (!emulator_make_map(&map, 4, x->at, size, stride, boxes)) {
        printf("%s: no tensor map\n", t->is->name);
        exit(1);
    }
    return map;
}

static bool launch(const Test *t, void *library)
{
    const Case *c = t->is;
    char symbol[100];
    snprintf(symbol, sizeof symbol, "%s_shared", c->name);
    const int *shared = dlsym(library, symbol);
    EmulatorKernel *kernel = emulator_kernel(library, c->name);
    if (!shared || !kernel) {
        printf("%s: no kernel\n", c->name);
        return false;
    }
    const int keys = c->feature <= 128 ? 128 : 64;
    TensorMap q = map_of(t, &t->q, ROWS), k = map_of(t, &t->k, keys), v = map_of(t, &t->v, keys);
    void *arguments[] = { &q, &k, &v, t->y.at, t->lse };
    const int64_t blocks = (int64_t)c->batch * t->q.heads * ((c->queries + QUERIES - 1) / QUERIES);
    return emulator_launch(c->name, kernel, arguments, 5, blocks, THREADS, *shared);
}

static bool run(const Case *c, void *library)
{
    Test t;
    open_test(&t, c);
    fill(&t);
    emulator_add_static_memory(library);
    emulator_add_memory("the operands", t.memory, t.bytes);
    const Tensor *const operands[] = { &t.q, &t.k, &t.v };
    for (int i = 0; i < 3; i++)
        allow(&t, operands[i], true);
    allow(&t, &t.y, false);
    emulator_allow(t.lse, (int64_t)c->batch * t.q.heads * c->queries * 4, false);
    bool good = launch(&t, library);
    for (int b = 0; b < c->batch; b++)
        for (int head = 0; head < t.q.heads; head++)
            for (int query = 0; query < c->queries && good; query++)
                good = is_right(&t, b, query, head);
    emulator_forget_memory();
    free(t.memory);
    return good;
}

int main(int argc, char **argv)
{
    void *library = emulator_open(argv[1]);
    if (!library)
        return 1;
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 3 || strcmp(argv[2], cases[i].name) == 0)
            failed += !run(&cases[i], library);
    return failed > 0;
}
