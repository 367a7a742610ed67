/* library.c -- loads CUDA's libraries when the trainer starts, and reports missing ones. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdlib.h>

static void *open_in(const char *folder, const char *file)
{
    char *path = rt_text("%s/lib64/%s", folder, file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    free(path);
    return library;
}

static void *open_library(const char *file)
{
    const char *home = getenv("CUDA_HOME");
    void *library = home && *home ? open_in(home, file) : NULL;
    if (!library)
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    return library ? library : open_in("/usr/local/cuda", file);
}

/* The first that is missing, or NULL. */
static const char *find_functions(void *library, int count, const char *const symbols[], void *functions[])
{
    for (int i = 0; i < count; i++)
        if (!(functions[i] = dlsym(library, symbols[i])))
            return symbols[i];
    return NULL;
}

void rt_library_load(const char *name, const char *file, int count, const char *const symbols[], void *functions[])
{
    void *library = open_library(file);
    if (!library)
        rt_fail("cannot load %s (%s): it comes with CUDA; set LD_LIBRARY_PATH to its folder, or CUDA_HOME to CUDA's",
                name, file);
    const char *missing = find_functions(library, count, symbols, functions);
    if (missing)
        rt_fail("%s (%s) has no %s: it is too old for this trainer", name, file, missing);
}

bool rt_library_find(const char *file, int count, const char *const symbols[], void *functions[])
{
    void *library = open_library(file);
    return library && !find_functions(library, count, symbols, functions);
}
