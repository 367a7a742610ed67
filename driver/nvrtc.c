/* nvrtc.c -- mpc compile --nvrtc: compiles kernels ahead of time and reports their resources. */
#include "nvrtc.h"

#include "cc.h"
#include "cuda_home.h"

#include "runtime/cuda/nvrtc_options.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The required part of nvrtc.h, which is the same in CUDA 11 to 13. */
typedef struct NvrtcProgram NvrtcProgram;
typedef struct {
    int (*create)(NvrtcProgram **, const char *source, const char *name, int, const char *const *, const char *const *);
    int (*compile)(NvrtcProgram *, int count, const char *const *options);
    int (*log_size)(NvrtcProgram *, size_t *);
    int (*log)(NvrtcProgram *, char *);
    int (*destroy)(NvrtcProgram **);
    const char *(*error_text)(int);
} Nvrtc;

/* --- The library ------------------------------------------------------------------------------ */

static void *open_library(Run *run)
{
    static const char *const names[] = { "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2" };
    void *library = NULL;
    for (int i = 0; i < 8 && !library; i++) {
        const char *path = i < 4 ? find_in_cuda(run, names[i]) : names[i - 4];
        library = path ? dlopen(path, RTLD_NOW) : NULL;
    }
    return library;
}

static bool find_nvrtc(Run *run, Nvrtc *nvrtc)
{
    void *library = open_library(run);
    if (!library)
        return run_failed(run,
                          "cannot find NVRTC (libnvrtc.so): set CUDA_HOME to CUDA's folder, or put its nvcc on PATH");
    static const char *const names[] = { "nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetProgramLogSize",
                                         "nvrtcGetProgramLog", "nvrtcDestroyProgram", "nvrtcGetErrorString" };
    void **const into[] = { (void **)&nvrtc->create, (void **)&nvrtc->compile, (void **)&nvrtc->log_size,
                            (void **)&nvrtc->log,    (void **)&nvrtc->destroy, (void **)&nvrtc->error_text };
    for (int i = 0; i < 6; i++) {
        *into[i] = dlsym(library, names[i]);
        if (!*into[i])
            return run_failed(run, "this NVRTC has no %s", names[i]);
    }
    return true;
}

/* --- Output of the assembler ------------------------------------------------------------------- */

typedef struct {
    int registers;
    int64_t shared, spills, stack;
} Usage;

static int64_t number_before(const char *text, const char *end, const char *what)
{
    for (const char *at = strstr(text, what); at && at < end; at = NULL) {
        while (at > text && at[-1] == ' ')
            at--;
        while (at > text && at[-1] >= '0' && at[-1] <= '9')
            at--;
        return strtoll(at, NULL, 10);
    }
    return 0;
}

/* "ptxas info : Compiling entry function 'NAME' ...", and lines up to the next one. */
static bool find_usage(Run *run, const char *log, const char *name, Usage *usage)
{
    const char *from = strstr(log, arena_text(&run->arena, "function '%s'", name));
    if (!from)
        return false;
    const char *end = strstr(from, "Compiling entry function");
    end = end ? end : from + strlen(from);
    usage->registers = (int)number_before(from, end, " registers");
    usage->shared = number_before(from, end, " bytes smem");
    usage->spills = number_before(from, end, " bytes spill stores") + number_before(from, end, " bytes spill loads");
    usage->stack = number_before(from, end, " bytes stack frame");
    return true;
}

/* On GPUs with 99 KiB per block, some kernels use less (RT_SMALL_SHARED). */
static int64_t shared_of(const CudaLaunch *launch, const char *architecture)
{
    static const char *const small[] = { "sm_86", "sm_89", "sm_120", "sm_121" };
    for (size_t i = 0; i < sizeof small / sizeof *small && launch->shared_small; i++)
        if (strcmp(architecture, small[i]) == 0)
            return launch->shared_small;
    return launch->shared;
}

/* Of the kernel for Hopper only where there is one, and where it is compiled. */
static void print_usage(Run *run, const CudaKernel *kernel, const char *architecture, const char *log, int *spilling)
{
    for (int i = 0; i <= kernel->launches->count; i++) {
        const CudaLaunch *launch = i < kernel->launches->count ? &kernel->launches->at[i] : &kernel->launches->hopper;
        Usage usage = { 0 };
        if (!launch->name || !find_usage(run, log, launch->name, &usage))
            continue;
        *spilling += usage.spills > 0;
        printf("    %-40s %9" PRId64 " x %4d %9d %9" PRId64 " %9" PRId64 " %9" PRId64 " %13" PRId64 " %13" PRId64
               "  %s\n",
               launch->name, launch->blocks, launch->threads, usage.registers,
               usage.shared + shared_of(launch, architecture), usage.spills, usage.stack, launch->bytes,
               i == 0 ? kernel->least : 0, kernel->where);
    }
}

/* What the assembler says of waits that it has inserted between products of warpgroups. */
static void print_losses(const char *log)
{
    for (const char *at = log; (at = strstr(at, "Performance Loss")); at++) {
        const char *line = at;
        while (line > log && line[-1] != '\n')
            line--;
        printf("    %.*s\n", (int)strcspn(line, "\n"), line);
    }
}

static void print_table(Run *run, const CudaProgram *program, const char *log, const char *architecture, double seconds)
{
    int count = 0, spilling = 0;
    printf("  kernels for %s, by NVRTC\n", architecture);
    printf("    %-40s %16s %9s %9s %9s %9s %13s %13s\n", "", "blocks x threads", "registers", "shared B", "spilled B",
           "stack B", "moved B", "least B");
    for (const CudaKernel *kernel; (kernel = cuda_kernel(program, count)); count++)
        print_usage(run, kernel, architecture, log, &spilling);
    print_losses(log);
    printf("    %d kernels compiled in %.1f s; %d of their functions spill registers\n", count, seconds, spilling);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool report_nvrtc(Run *run, const CudaProgram *program, const char *architecture)
{
    Nvrtc nvrtc;
    Runtime runtime;
    if (!find_nvrtc(run, &nvrtc) || !find_runtime(run, &runtime))
        return false;
    const char *const options[] = { arena_text(&run->arena, "--gpu-architecture=%s", architecture),
                                    RT_NVRTC_OPTIONS,
                                    "--ptxas-options=-v",
                                    arena_text(&run->arena, "--include-path=%s", runtime.headers),
                                    arena_text(&run->arena, "--include-path=%s/cuda", runtime.headers),
                                    arena_text(&run->arena, "--include-path=%s/cuda/nvrtc", runtime.headers) };
    NvrtcProgram *compiled;
    double start = seconds_now();
    nvrtc.create(&compiled, cuda_program_text(program), "kernels.cu", 0, NULL, NULL);
    int status = nvrtc.compile(compiled, (int)(sizeof options / sizeof *options), options);
    size_t size = 0;
    nvrtc.log_size(compiled, &size);
    char *log = NEW_ARRAY(&run->arena, char, size + 1);
    nvrtc.log(compiled, log);
    nvrtc.destroy(&compiled);
    if (status != 0) {
        fputs(log, stderr);
        return run_failed(run, "NVRTC cannot compile the kernels for %s: %s", architecture, nvrtc.error_text(status));
    }
    print_table(run, program, log, architecture, seconds_now() - start);
    return true;
}
