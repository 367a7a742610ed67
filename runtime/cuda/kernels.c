/* kernels.c -- kernels of the program: compiled by NVRTC for the present GPU, cached on disk, launched.
 *
 * The text is part of the program; the headers of runtime/cuda/ are part of this library. */
#include "gpu.h"
#include "index.h"
#include "nvrtc_options.h"

#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

RT_EMBED(rt_kernels_header, "kernels_header.cu");

const char *rt_gpu_kernels_header(void) { return rt_kernels_header; }

static const char header_name[] = "cuda/kernels.cuh", source_name[] = "kernels.cu";

#define FUNCTIONS(F)                                                                                                   \
    F(nvrtcVersion)                                                                                                    \
    F(nvrtcCreateProgram)                                                                                              \
    F(nvrtcCompileProgram)                                                                                             \
    F(nvrtcDestroyProgram)                                                                                             \
    F(nvrtcGetProgramLogSize)                                                                                          \
    F(nvrtcGetProgramLog)                                                                                              \
    F(nvrtcGetCUBINSize)                                                                                               \
    F(nvrtcGetCUBIN)                                                                                                   \
    F(nvrtcGetErrorString)

#define POINTER(function) __typeof__(&function) function;
#define NAME(function) #function,

typedef union {
    struct {
        FUNCTIONS(POINTER)
    };
    void *at[9];
} Nvrtc;

struct RtGpuKernels {
    cudaLibrary_t library;
    cudaKernel_t *kernel; /* of each launch of the program */
    void **arguments;     /* buffer for the arguments of any launch */
    void *bad_index;      /* rt_bad_index of the kernels; NULL: no kernel uses indices */
    RtBadIndex *answer;   /* the last copy of it; pinned memory */
};

static Nvrtc load_nvrtc(void)
{
    static const char *const names[] = { FUNCTIONS(NAME) };
    Nvrtc nvrtc;
    char *file = rt_text("libnvrtc.so.%d", CUDART_VERSION / 1000);
    rt_library_load("NVRTC", file, sizeof names / sizeof *names, names, nvrtc.at);
    free(file);
    return nvrtc;
}

/* --- Compiling ------------------------------------------------------------------------------ */

/* The launch whose function has line `line` of the text. */
static const RtKernelLaunch *launch_at(const RtCode *code, int line)
{
    const char *text = code->text;
    for (; line > 1 && *text; text++)
        line -= *text == '\n';
    const RtKernelLaunch *found = NULL;
    const char *last = NULL;
    for (const RtKernelLaunch *l = code->launches; l < code->launches + code->nlaunches; l++) {
        char *head = rt_text(" %s(", l->name), *at = strstr(code->text, head);
        free(head);
        if (at && at <= text + strcspn(text, "\n") && (!last || at > last)) {
            last = at;
            found = l;
        }
    }
    return found;
}

static _Noreturn void refuse_kernels(const Nvrtc *nvrtc, nvrtcProgram program, const RtCode *code, const char *reason)
{
    size_t size = 1;
    nvrtc->nvrtcGetProgramLogSize(program, &size);
    char *log = rt_allocate((int64_t)size + 1, 1);
    nvrtc->nvrtcGetProgramLog(program, log);
    char *at = strstr(log, source_name);
    int line = 0;
    while (at && sscanf(at + strlen(source_name), "(%d): error", &line) != 1)
        at = strstr(at + 1, source_name);
    fprintf(stderr, "%s", log);
    const RtKernelLaunch *launch = at ? launch_at(code, line) : NULL;
    rt_fail("NVRTC cannot compile %s%s%s (%s): a bug in mpc or in CUDA; please report it with the lines above",
            launch ? launch->name : "the kernels", launch ? " of " : "", launch ? launch->where : "", reason);
}

/* "sm_90a": with all that this GPU has, and no later one needs to. */
static char *architecture_of(const struct RtGpu *gpu)
{
    return rt_text("sm_%d%d%s", gpu->major, gpu->minor, rt_gpu_is_hopper(gpu) ? "a" : "");
}

static void *compile(const Rt *rt, const Nvrtc *nvrtc, size_t *bytes)
{
    const RtCode *code = rt->program->code;
    char *architecture = architecture_of(rt->gpu), *option = rt_text("--gpu-architecture=%s", architecture);
    const char *const options[] = { option, RT_NVRTC_OPTIONS }, *headers[] = { rt_kernels_header };
    const char *const header_names[] = { header_name };
    nvrtcProgram program;
    nvrtcResult status = nvrtc->nvrtcCreateProgram(&program, code->text, source_name, 1, headers, header_names);
    if (status == NVRTC_SUCCESS)
        status = nvrtc->nvrtcCompileProgram(program, sizeof options / sizeof *options, options);
    if (status != NVRTC_SUCCESS)
        refuse_kernels(nvrtc, program, code, nvrtc->nvrtcGetErrorString(status));
    nvrtc->nvrtcGetCUBINSize(program, bytes);
    void *cubin = rt_allocate((int64_t)*bytes, 1);
    nvrtc->nvrtcGetCUBIN(program, cubin);
    nvrtc->nvrtcDestroyProgram(&program);
    free(option);
    free(architecture);
    return cubin;
}

static char *key_of(const Rt *rt, const Nvrtc *nvrtc)
{
    int major = 0, minor = 0;
    nvrtc->nvrtcVersion(&major, &minor);
    char *version = rt_text("%d.%d", major, minor), *suffix = architecture_of(rt->gpu);
    const char *const texts[] = { RT_NVRTC_OPTIONS, version, rt_kernels_header, rt->program->code->text };
    char *key = rt_cache_key(sizeof texts / sizeof *texts, texts, suffix);
    free(version);
    free(suffix);
    return key;
}

/* One rank of each machine compiles. */
static void *compile_once(const Rt *rt, const Nvrtc *nvrtc, const char *folder, const char *key, size_t *bytes)
{
    double begin = rt_seconds();
    char *architecture = architecture_of(rt->gpu);
    rt_note("kernels: compiling %d for %s, once ...", rt->program->code->nlaunches, architecture);
    free(architecture);
    RtCacheLock lock = rt_cache_lock(folder, key);
    void *cubin = rt_cache_find(folder, key, bytes);
    if (!cubin) {
        cubin = compile(rt, nvrtc, bytes);
        rt_cache_keep(folder, key, cubin, *bytes);
    }
    rt_cache_unlock(&lock);
    rt_note("kernels: compiled in %.1f s, kept in %s", rt_seconds() - begin, folder);
    return cubin;
}

static void *find_or_compile(const Rt *rt, size_t *bytes)
{
    Nvrtc nvrtc = load_nvrtc();
    char *folder = rt_cache_folder(rt->gpu->options.kernel_cache), *key = key_of(rt, &nvrtc);
    void *cubin = rt_cache_find(folder, key, bytes);
    if (!cubin)
        cubin = compile_once(rt, &nvrtc, folder, key, bytes);
    free(folder);
    free(key);
    return cubin;
}

/* --- Loading -------------------------------------------------------------------------------- */

/* Must agree with the choice of kernels by architecture (RT_SMALL_SHARED). */
static int64_t shared_of(const struct RtGpu *gpu, const RtKernelLaunch *launch)
{
    enum { SMALL = 99 * 1024 };
    return gpu->most_shared > SMALL ? launch->shared : launch->shared_small;
}

static void find_kernel(Rt *rt, int number)
{
    struct RtGpuKernels *k = rt->gpu->kernels;
    const RtKernelLaunch *launch = &rt->program->code->launches[number];
    char *what = rt_text("load the kernel %s of %s", launch->name, launch->where);
    rt_gpu_check(rt, cudaLibraryGetKernel(&k->kernel[number], k->library, launch->name), what);
    int64_t shared = shared_of(rt->gpu, launch);
    if (shared > rt->gpu->most_shared)
        rt_fail("%s of %s needs %lld bytes of shared memory for a block, and %s has %lld: it needs a larger GPU",
                launch->name, launch->where, (long long)shared, rt->gpu->name, (long long)rt->gpu->most_shared);
    if (shared > 0) /* without it 48 KiB are available, of which the kernel's declared ones are a part */
        rt_gpu_check(rt,
                     cudaKernelSetAttributeForDevice(k->kernel[number], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     (int)shared, rt->gpu->number),
                     what);
    free(what);
}

static void open_bad_index(Rt *rt, struct RtGpuKernels *k)
{
    size_t room;
    void *answer;
    cudaError_t status = cudaLibraryGetGlobal(&k->bad_index, &room, k->library, "rt_bad_index");
    if (status == cudaErrorSymbolNotFound) {
        k->bad_index = NULL;
        return;
    }
    rt_gpu_check(rt, status, "find a variable of the kernels");
    rt_gpu_check(rt, cudaHostAlloc(&answer, sizeof *k->answer, cudaHostAllocDefault), "pin memory");
    k->answer = answer;
}

void rt_gpu_index_ask(Rt *rt)
{
    const struct RtGpuKernels *k = rt->gpu->kernels;
    if (k->bad_index)
        rt_gpu_check(
            rt, cudaMemcpyAsync(k->answer, k->bad_index, sizeof *k->answer, cudaMemcpyDeviceToHost, rt->gpu->compute),
            "ask for indices");
}

void rt_gpu_index_check(const Rt *rt)
{
    const struct RtGpuKernels *k = rt->gpu->kernels;
    if (k->bad_index && k->answer->is_claimed)
        rt_index_refuse(k->answer->index, k->answer->size, k->answer->dim, k->answer->where);
}

/* On the compute stream: the default stream is not ordered with it. */
static void set_parts(Rt *rt)
{
    const RtCode *code = rt->program->code;
    RtPart *part = rt_allocate(code->nparts, sizeof *part);
    for (int i = 0; i < code->nparts; i++) {
        const RtPartConstant *constant = &code->parts[i];
        void *at;
        size_t room;
        part[i] = rt_part(rt, constant->split, constant->padded);
        rt_gpu_check(rt, cudaLibraryGetGlobal(&at, &room, rt->gpu->kernels->library, constant->name),
                     "find a constant of the kernels");
        rt_gpu_check(rt, cudaMemcpyAsync(at, &part[i], sizeof *part, cudaMemcpyHostToDevice, rt->gpu->compute),
                     "set a constant of the kernels");
    }
    rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "set the constants of the kernels");
    free(part);
}

void rt_gpu_kernels_open(Rt *rt)
{
    const RtCode *code = rt->program->code;
    struct RtGpuKernels *k = rt->gpu->kernels = rt_allocate(1, sizeof *k);
    size_t bytes;
    void *cubin = find_or_compile(rt, &bytes);
    rt_gpu_check(rt, cudaLibraryLoadData(&k->library, cubin, NULL, NULL, 0, NULL, NULL, 0), "load the kernels");
    free(cubin);
    k->kernel = rt_allocate(code->nlaunches, sizeof *k->kernel);
    int most = 1;
    for (int i = 0; i < code->nlaunches; i++) {
        find_kernel(rt, i);
        most = code->launches[i].operands > most ? code->launches[i].operands : most;
    }
    k->arguments = rt_allocate(most, sizeof *k->arguments);
    open_bad_index(rt, k);
    set_parts(rt);
}

void rt_gpu_kernels_close(Rt *rt)
{
    struct RtGpuKernels *k = rt->gpu->kernels;
    rt_gpu_check(rt, cudaLibraryUnload(k->library), "unload the kernels");
    if (k->bad_index)
        rt_gpu_check(rt, cudaFreeHost(k->answer), "free pinned memory");
    free(k->kernel);
    free(k->arguments);
    free(k);
}

cudaKernel_t rt_gpu_kernel(Rt *rt, const char *name)
{
    cudaKernel_t kernel;
    char *what = rt_text("load the kernel %s", name);
    rt_gpu_check(rt, cudaLibraryGetKernel(&kernel, rt->gpu->kernels->library, name), what);
    free(what);
    return kernel;
}

/* --- Launching ------------------------------------------------------------------------------- */

void rt_launch(Rt *rt, int launch, const void *const operands[])
{
    struct RtGpuKernels *k = rt->gpu->kernels;
    const RtKernelLaunch *row = &rt->program->code->launches[launch];
    for (int i = 0; i < row->operands; i++)
        k->arguments[i] = (void *)(uintptr_t)&operands[i];
    do {
        cudaError_t status = cudaLaunchKernel((const void *)k->kernel[launch], (dim3){ (unsigned)row->blocks, 1, 1 },
                                              (dim3){ (unsigned)row->threads, 1, 1 }, k->arguments,
                                              (size_t)shared_of(rt->gpu, row), rt->gpu->compute);
        if (status != cudaSuccess)
            rt_fail("%s cannot launch %s of %s: %s", rt->gpu->name, row->name, row->where, cudaGetErrorString(status));
        launch++;
    } while (row++->more);
}
