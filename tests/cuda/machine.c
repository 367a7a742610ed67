/* machine.c -- the emulator runs kernels: compiled by g++, with a call at each access to memory.  EMULATOR_CALLS:
 * functions that are put into their callers take longer to compile than they save. */
#include "machine.h"

#include <dlfcn.h>
#include <stdlib.h>

void machine_write_head(FILE *out) { fprintf(out, "#include \"wrap.h\"\n"); }
void machine_write_tail(FILE *out) { fprintf(out, "#include \"sections.h\"\n"); }

void *machine_load(const char *source, const char *directory)
{
    const char *cxx = getenv("KERNEL_CXX");
    char command[4096], library[1024];
    snprintf(library, sizeof library, "%s/kernels.so", directory);
    snprintf(command, sizeof command,
             "%s -std=gnu++20 -Og -DEMULATOR_CALLS -fPIC -fsanitize=thread --param tsan-instrument-func-entry-exit=0 "
             "-Wall -Wextra -Werror -Wno-maybe-uninitialized -Wno-unknown-pragmas -Wno-unused-parameter "
             "-Wno-missing-field-initializers -Wno-psabi "
             "-I" MPC_ROOT "/tests/cuda/emulator -I" MPC_ROOT "/runtime/cuda -I" MPC_ROOT "/runtime -c %s -o %s.o && "
             "%s -shared -o %s %s.o -lm",
             cxx ? cxx : "g++", source, library, cxx ? cxx : "g++", library, library);
    void *loaded = system(command) == 0 ? dlopen(library, RTLD_NOW) : NULL;
    if (!loaded)
        printf("  cannot be compiled or loaded: %s\n", dlerror());
    return loaded;
}

void machine_unload(void *library) { dlclose(library); }

EmulatorKernel *machine_kernel(void *library, const char *name) { return emulator_kernel(library, name); }

void machine_set_rank(void *library, int rank)
{
    emulator_add_static_memory(library);
    void (*set_rank)(int) = (void (*)(int))(intptr_t)dlsym(library, "emulated_rank");
    set_rank(rank);
}
