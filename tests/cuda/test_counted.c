/* test_counted.c -- runtime/cuda/counted.cuh on the emulator: products that leave empty rows out are the products, and
 * do not read what they leave out.
 *
 *   test_counted LIBRARY     of counted_kernels.cpp
 *
 * Three matrices: one without a filled line, one with some and a hole between them, one that is full. */
#include "convert.h"
#include "emulator/emulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATRICES = 3, TILE = 128, DEPTH = 32, THREADS = 256, COUNT_BLOCKS = 32, PARTS = 256, SHARED = 81920, GAP = 256 };
typedef enum { ROWS, COLUMNS, TERMS } Counted;
typedef enum { f32, bf16, f16 } Type;

typedef struct {
    const char *name;
    Counted counted;
    bool a_by_terms, b_by_terms, adds;
    Type type, result;
    int m, n, k;
} Case;

static const Case cases[] = {
#define CASE(name, counted, a_by_terms, b_by_terms, adds, type, result, m, n, k)                                       \
    { #name, counted, a_by_terms, b_by_terms, adds, type, result, m, n, k },
#include "counted_cases.def"
#undef CASE
};

/* --- Elements --------------------------------------------------------------------------------- */

static int bytes_of(Type type) { return type == f32 ? 4 : 2; }

static float load(Type type, const void *at, int64_t i)
{
    if (type == f32)
        return ((const float *)at)[i];
    const uint16_t bits = ((const uint16_t *)at)[i];
    return type == bf16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
}

static void store(Type type, void *at, int64_t i, float x)
{
    if (type == f32)
        ((float *)at)[i] = x;
    else
        ((uint16_t *)at)[i] = type == bf16 ? rt_bf16_of_float(x) : rt_f16_of_float(x);
}

static float random_number(void) { return (float)rand() / (float)RAND_MAX * 2 - 1; }

/* --- Matrices --------------------------------------------------------------------------------- */

/* Lines of contiguous elements, `gap` apart. */
typedef struct {
    Type type;
    int lines, length, gap;
    void *at;
} Matrix;

static int64_t all_bytes(const Matrix *m)
{
    return (int64_t)MATRICES * m->lines * (m->length + m->gap) * bytes_of(m->type);
}

static int64_t index_in(const Matrix *m, int matrix, int line, int element)
{
    return ((int64_t)matrix * m->lines + line) * (m->length + m->gap) + element;
}

static void fill(const Matrix *m)
{
    for (int i = 0; i < MATRICES; i++)
        for (int line = 0; line < m->lines; line++)
            for (int e = 0; e < m->length; e++)
                store(m->type, m->at, index_in(m, i, line, e), random_number());
}

/* Half of them in the second matrix; the other two are empty and full. */
static int filled_in(const Matrix *m, int matrix) { return matrix == 0 ? 0 : matrix == 2 ? m->lines : m->lines / 2; }

static void empty(const Matrix *m)
{
    for (int i = 0; i < MATRICES; i++)
        for (int line = 0; line < m->lines; line++)
            for (int e = 0; e < m->length; e++)
                if (line >= filled_in(m, i) || (i == 1 && line == 1))
                    store(m->type, m->at, index_in(m, i, line, e), line % 2 ? -0.0f : 0.0f);
}

/* --- One case --------------------------------------------------------------------------------- */

typedef struct {
    const Case *is;
    Matrix a, b, c, before;
    const Matrix *counted;
    int32_t *filled;
} Test;

static void *take(char **at, int64_t bytes)
{
    void *place = *at;
    *at += (bytes + 2 * GAP - 1) / GAP * GAP;
    return place;
}

static float element(const Matrix *m, bool by_terms, int matrix, int outer, int term)
{
    return load(m->type, m->at, index_in(m, matrix, by_terms ? outer : term, by_terms ? term : outer));
}

/* Sums in f32: a rounding for each term, of the sum of their sizes, and the result's own. */
static bool is_right(const Test *t, int matrix, int i, int j)
{
    const double unit = t->is->result == f32 ? 0x1p-24 : t->is->result == f16 ? 0x1p-11 : 0x1p-8;
    double sum = t->is->adds ? load(t->c.type, t->before.at, index_in(&t->c, matrix, i, j)) : 0, size = fabs(sum);
    for (int k = 0; k < t->is->k; k++) {
        const double product =
            (double)element(&t->a, t->is->a_by_terms, matrix, i, k) * element(&t->b, t->is->b_by_terms, matrix, j, k);
        sum += product;
        size += fabs(product);
    }
    const float found = load(t->c.type, t->c.at, index_in(&t->c, matrix, i, j));
    if (fabs(found - sum) <= t->is->k * 0x1p-24 * size + unit * fabs(sum) + 0x1p-24)
        return true;
    printf("%s: matrix %d, row %d, column %d is %g, not %g\n", t->is->name, matrix, i, j, found, sum);
    return false;
}

static int rounded(int count, int to, int most)
{
    const int up = (count + to - 1) / to * to;
    return up < most ? up : most;
}

/* What the product has to read and write: each tile that is not empty. */
static int64_t least_bytes(const Test *t)
{
    const Case *c = t->is;
    int64_t bytes = (int64_t)MATRICES * PARTS * 4;
    for (int i = 0; i < MATRICES; i++) {
        const int lines = filled_in(t->counted, i);
        const int m = c->counted == ROWS ? rounded(lines, TILE, c->m) : c->m;
        const int n = c->counted == COLUMNS ? rounded(lines, TILE, c->n) : c->n;
        const int k = c->counted == TERMS ? rounded(lines, DEPTH, c->k) : c->k;
        if (m && n && k)
            bytes += ((int64_t)m * k + (int64_t)k * n) * 2;
        bytes += (c->adds ? (k ? 2 * (int64_t)m * n : 0) : (int64_t)c->m * c->n) * bytes_of(c->result);
    }
    return bytes;
}

static EmulatorKernel *kernel_of(void *library, const char *name, const char *part)
{
    char whole[100];
    snprintf(whole, sizeof whole, "%s_%s", name, part);
    EmulatorKernel *kernel = emulator_kernel(library, whole);
    if (!kernel) {
        printf("no kernel %s\n", whole);
        exit(1);
    }
    return kernel;
}

static bool launch(Test *t, void *library)
{
    const Case *c = t->is;
    void *arguments[] = { t->a.at, t->b.at, t->c.at, t->filled };
    const int64_t tiles = (int64_t)((c->m + TILE - 1) / TILE) * ((c->n + TILE - 1) / TILE);
    if (!emulator_launch(c->name, kernel_of(library, c->name, "count"), arguments, 4, MATRICES * COUNT_BLOCKS, THREADS,
                         0) ||
        !emulator_launch(c->name, kernel_of(library, c->name, "product"), arguments, 4, MATRICES * tiles, THREADS,
                         SHARED))
        return false;
    const int64_t moved = emulator_bytes_moved();
    if (moved == least_bytes(t))
        return true;
    printf("%s: the product has read and written %lld bytes, not %lld\n", c->name, (long long)moved,
           (long long)least_bytes(t));
    return false;
}

static bool check(const Test *t)
{
    for (int i = 0; i < MATRICES; i++)
        for (int row = 0; row < t->is->m; row++)
            for (int column = 0; column < t->is->n; column++)
                if (!is_right(t, i, row, column))
                    return false;
    return true;
}

static void allow(const Matrix *m, bool is_written)
{
    for (int i = 0; i < MATRICES; i++)
        for (int line = 0; line < m->lines; line++)
            emulator_allow((char *)m->at + index_in(m, i, line, 0) * bytes_of(m->type),
                           (int64_t)m->length * bytes_of(m->type), is_written);
}

static bool run(const Case *c, void *library)
{
    Test t = { .is = c,
               .a = { c->type, c->a_by_terms ? c->m : c->k, c->a_by_terms ? c->k : c->m, 8, NULL },
               .b = { c->type, c->b_by_terms ? c->n : c->k, c->b_by_terms ? c->k : c->n, 8, NULL },
               .c = { c->result, c->m, c->n, 2, NULL } };
    const int64_t bytes =
        all_bytes(&t.a) + all_bytes(&t.b) + all_bytes(&t.c) + (int64_t)MATRICES * PARTS * 4 + 16 * GAP;
    char *memory = aligned_alloc(GAP, (size_t)((bytes + GAP - 1) / GAP * GAP)), *at = memory + GAP;
    t.a.at = take(&at, all_bytes(&t.a));
    t.b.at = take(&at, all_bytes(&t.b));
    t.c.at = take(&at, all_bytes(&t.c));
    t.filled = take(&at, (int64_t)MATRICES * PARTS * 4);
    t.before = t.c;
    t.before.at = malloc((size_t)all_bytes(&t.c));
    t.counted = c->counted == ROWS || (c->counted == TERMS && !c->a_by_terms) ? &t.a : &t.b;
    fill(&t.a);
    fill(&t.b);
    fill(&t.c);
    empty(t.counted);
    memcpy(t.before.at, t.c.at, (size_t)all_bytes(&t.c));
    emulator_add_static_memory(library);
    emulator_add_memory("the operands", memory, bytes);
    allow(&t.a, true);
    allow(&t.b, true);
    allow(&t.c, c->adds);
    emulator_allow(t.filled, (int64_t)MATRICES * PARTS * 4, false);
    const bool good = launch(&t, library) && check(&t);
    emulator_forget_memory();
    free(t.before.at);
    free(memory);
    return good;
}

int main(int argc, char **argv)
{
    void *library = emulator_open(argv[1]);
    if (!library)
        return 1;
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        failed += !run(&cases[i], library);
    return failed > 0;
}
