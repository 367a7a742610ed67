/* emulator_library.c -- kernels that were compiled for the emulator: their library, their functions, their static
 * memory. */
#include "emulator.h"

#include <dlfcn.h>
#include <stdio.h>

void *emulator_open(const char *path)
{
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    if (!library)
        printf("no kernels: %s\n", path ? dlerror() : "no library is named");
    return library;
}

EmulatorKernel *emulator_kernel(void *library, const char *name)
{
    char symbol[200];
    snprintf(symbol, sizeof symbol, "%s_emulated", name);
    return (EmulatorKernel *)(intptr_t)dlsym(library, symbol);
}

void emulator_add_static_memory(void *library)
{
    static const char *const sections[] = { "shared", "constant" };
    for (int i = 0; i < 2; i++) {
        char first[40], last[40];
        snprintf(first, sizeof first, "emulated_%s_begin", sections[i]);
        snprintf(last, sizeof last, "emulated_%s_end", sections[i]);
        char **begin = dlsym(library, first), **end = dlsym(library, last);
        if (begin && end && *end > *begin)
            (i ? emulator_add_constants : emulator_set_shared)(*begin, *end - *begin);
    }
}
