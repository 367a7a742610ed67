/* cuda_home.c -- finds CUDA's folder. */
#include "cuda_home.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* nvcc is in its bin/. */
static const char *cuda_on_path(Run *run)
{
    const char *nvcc = program_on_path(&run->arena, "nvcc");
    return nvcc ? arena_text(&run->arena, "%.*s/..", (int)(strrchr(nvcc, '/') - nvcc), nvcc) : NULL;
}

const char *find_in_cuda(Run *run, const char *name)
{
    const char *const homes[] = { getenv("CUDA_HOME"), cuda_on_path(run), "/usr/local/cuda" };
    for (int i = 0; i < 3; i++)
        for (int wide = 1; wide >= 0 && homes[i]; wide--) {
            const char *path = arena_text(&run->arena, "%s/lib%s/%s", homes[i], wide ? "64" : "", name);
            if (access(path, R_OK) == 0)
                return path;
        }
    return NULL;
}
