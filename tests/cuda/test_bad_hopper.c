/* test_bad_hopper.c -- the emulator detects what is wrong with kernels by Hopper's instructions: it reports it, or
 * results are wrong; and reports nothing of correct ones.
 *
 *   test_bad_hopper LIBRARY     of bad_hopper.cpp */
#include "convert.h"
#include "emulator/emulator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, TERMS = 64, THREADS = 384, SHARED = 1024 + 2 * ROWS * TERMS * 2 + 16, ALIGNED = 256 };

static const struct {
    const char *name;
    bool is_good;
} kernels[] = {
#define KERNEL(name, is_good) { #name, is_good },
#include "bad_hopper.def"
#undef KERNEL
};

typedef struct {
    _Alignas(64) char bits[EMULATOR_MAP_BYTES];
} TensorMap;

static uint16_t *x; /* [2 * ROWS, TERMS] */
static float *y;    /* [ROWS, ROWS] */

/* Small whole numbers: sums are exact. */
static void fill(void)
{
    x = aligned_alloc(ALIGNED, 2 * ROWS * TERMS * sizeof *x);
    y = aligned_alloc(ALIGNED, ROWS * ROWS * sizeof *y);
    for (int i = 0; i < 2 * ROWS * TERMS; i++)
        x[i] = rt_bf16_of_float((float)(i / TERMS * 7 % 11 + i % TERMS * 5 % 13 - 9));
}

static bool is_product(void)
{
    for (int i = 0; i < ROWS * ROWS; i++) {
        float sum = 0;
        for (int k = 0; k < TERMS; k++)
            sum += rt_float_of_bf16(x[i / ROWS * TERMS + k]) * rt_float_of_bf16(x[(ROWS + i % ROWS) * TERMS + k]);
        if (y[i] != sum)
            return false;
    }
    return true;
}

static bool run(void *library, const char *name)
{
    EmulatorKernel *kernel = emulator_kernel(library, name);
    TensorMap map;
    const uint64_t size[] = { TERMS, 2 * ROWS, 1, 1 }, stride[] = { TERMS * 2, TERMS * 2, TERMS * 2 };
    const uint32_t box[] = { TERMS, ROWS, 1, 1 };
    if (!kernel || !emulator_make_map(&map, 4, x, size, stride, box)) {
        printf("no kernel %s, or no tensor map\n", name);
        exit(1);
    }
    memset(y, 0, ROWS * ROWS * sizeof *y);
    emulator_add_memory("x", x, 2 * ROWS * TERMS * (int64_t)sizeof *x);
    emulator_add_memory("y", y, ROWS * ROWS * (int64_t)sizeof *y);
    emulator_add_static_memory(library);
    emulator_allow(x, 2 * ROWS * TERMS * (int64_t)sizeof *x, true);
    emulator_allow(y, ROWS * ROWS * (int64_t)sizeof *y, false);
    void *arguments[] = { &map, y };
    const bool good = emulator_launch(name, kernel, arguments, 2, 1, THREADS, SHARED);
    emulator_forget_memory();
    return good && is_product();
}

int main(int argc, char **argv)
{
    void *library = emulator_open(argv[1]);
    if (!library)
        return 1;
    fill();
    int failed = 0;
    if (argc < 3) /* "-v": says what it finds */
        fclose(stderr);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (run(library, kernels[i].name) != kernels[i].is_good) {
            printf("%s: %s\n", kernels[i].name, kernels[i].is_good ? "is good, but a fault is found" : "is not found");
            failed++;
        }
    free(x);
    free(y);
    dlclose(library);
    return failed > 0;
}
