/* test_emulator.c -- the emulator detects faults of kernels, and reports none in correct ones.
 *
 * The kernels are in bad_kernels.cpp, compiled as emitted kernels are; each is named after its fault.
 */
#include "emulator/emulator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 2, THREADS = 64, COUNT = BLOCKS * THREADS };

static const struct {
    const char *name;
    bool is_good;
} kernels[] = {
    { "copies", true },
    { "sums_in_shared_memory", true },
    { "shuffles", true },
    { "takes_turns", true },
    { "syncs_a_warp", true },
    { "uses_dynamic_memory", true },
    { "reads_behind_the_end", false },
    { "writes_before_the_start", false },
    { "writes_an_input_of_another", false },
    { "reads_what_is_not_written", false },
    { "reads_unwritten_shared_memory", false },
    { "reads_unwritten_dynamic_memory", false },
    { "lacks_a_barrier", false },
    { "lacks_a_barrier_before_the_next_turn", false },
    { "lacks_a_warp_barrier", false },
    { "reads_what_another_block_writes", false },
    { "two_blocks_write_one_element", false },
    { "loads_off_the_boundary", false },
    { "stores_packs", true },
    { "stores_packs_off_the_boundary", false },
    { "stores_packs_to_shared_memory", false },
    { "half_of_the_warp_shuffles", false },
    { "half_of_the_block_meets", false },
    { "behind_dynamic_memory", false },
    { "follows_null", false },
};

static float *memory;

static bool run(void *library, const char *name)
{
    EmulatorKernel *kernel = emulator_kernel(library, name);
    if (!kernel) {
        printf("no kernel %s\n", name);
        exit(1);
    }
    /* [guard, COUNT of x, COUNT of y, COUNT of nobody] */
    emulator_add_memory("the operands", memory, (int64_t)sizeof(float) * (3 * COUNT + 16));
    emulator_add_static_memory(library);
    float *x = memory + 16, *y = x + COUNT;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)i, y[i] = -1;
    emulator_allow(x, COUNT * 4, true);
    emulator_allow(y, COUNT * 4, false);
    void *arguments[] = { x, y };
    bool good = emulator_launch(name, kernel, arguments, 2, BLOCKS, THREADS, 256);
    emulator_forget_memory();
    return good;
}

int main(int argc, char **argv)
{
    void *library = emulator_open(argv[1]);
    if (!library)
        return 1;
    memory = aligned_alloc(256, (size_t)(3 * COUNT + 64) * sizeof(float));
    int failed = 0;
    fclose(stderr); /* faults are expected */
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (run(library, kernels[i].name) != kernels[i].is_good) {
            printf("%s: %s\n", kernels[i].name, kernels[i].is_good ? "is good, but a fault is found" : "is not found");
            failed++;
        }
    free(memory);
    dlclose(library);
    return failed > 0;
}
