/* cuda_home.c -- finds CUDA's folder. */
#include "cuda_home.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* nvcc is in its bin/. */
static const char *cuda_on_path(Run *run)
{
    for (const char *at = getenv("PATH"); at && *at; at += strspn(at, ":")) {
        int length = (int)strcspn(at, ":");
        if (access(arena_text(&run->arena, "%.*s/nvcc", length, at), X_OK) == 0)
            return arena_text(&run->arena, "%.*s/..", length, at);
        at += length;
    }
    return NULL;
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
