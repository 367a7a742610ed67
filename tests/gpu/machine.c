/* machine.c -- for tests/cuda/execute.c: kernels run on a GPU, compiled by NVRTC as a trainer compiles them.
 *
 * Memory is copied to the GPU before each launch and back afterwards.  Accesses are not checked here: use the emulator,
 * or compute-sanitizer. */
#include "cuda/machine.h"

#include "runtime/cuda/nvrtc_options.h"

#include <cuda_runtime_api.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMORIES = 4, GUARD = 256 };

typedef struct {
    char *base, *device;
    int64_t bytes;
} Memory;

static Memory memories[MAX_MEMORIES];
static int nmemories;
static cudaStream_t stream;

static void check(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    exit(2);
}

/* --- Kernels ------------------------------------------------------------------------------------ */

/* Constants that differ between ranks are set by a kernel, so they are variables. */
void machine_write_head(FILE *out) { fprintf(out, "#define __constant__ __device__\n#undef EMULATED\n"); }

void machine_write_tail(FILE *out)
{
    fprintf(out, "extern \"C\" __global__ void __launch_bounds__(32) emulated_rank_kernel(int *rank) { "
                 "emulated_rank(*rank); }\n");
}

static char *read_text(const char *path)
{
    FILE *in = fopen(path, "rb");
    size_t size = 0, some = 1;
    char *text = calloc(1, 1);
    for (; in && some > 0; size += some) {
        text = realloc(text, size + (1 << 20) + 1);
        some = fread(text + size, 1, 1 << 20, in);
        text[size + some] = '\0';
    }
    if (in)
        fclose(in);
    return text;
}

static nvrtcResult compile(const char *text, nvrtcProgram *program)
{
    int major = 0, minor = 0;
    char architecture[40];
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "which GPU is it");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "which GPU is it");
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%d", major, minor);
    const char *const options[] = { architecture, RT_NVRTC_OPTIONS, "--include-path=" MPC_ROOT "/runtime",
                                    "--include-path=" MPC_ROOT "/runtime/cuda",
                                    "--include-path=" MPC_ROOT "/runtime/cuda/nvrtc" };
    nvrtcCreateProgram(program, text, "kernels.cu", 0, NULL, NULL);
    return nvrtcCompileProgram(*program, sizeof options / sizeof *options, options);
}

void *machine_load(const char *source, const char *directory)
{
    nvrtcProgram program;
    cudaLibrary_t library = NULL;
    size_t bytes = 0;
    int count = 0;
    check(cudaGetDeviceCount(&count), "is there a GPU");
    char *text = read_text(source), *code = NULL;
    bool compiled = compile(text, &program) == NVRTC_SUCCESS;
    if (compiled)
        nvrtcGetCUBINSize(program, &bytes);
    else
        nvrtcGetProgramLogSize(program, &bytes);
    code = calloc(1, bytes + 1);
    if (compiled)
        nvrtcGetCUBIN(program, code);
    else
        nvrtcGetProgramLog(program, code);
    if (!compiled)
        printf("%s\n", code);
    else
        check(cudaLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0), "load kernels");
    if (!stream)
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
    nvrtcDestroyProgram(&program);
    free(code);
    free(text);
    return library;
}

void machine_unload(void *library) { check(cudaLibraryUnload((cudaLibrary_t)library), "unload kernels"); }

EmulatorKernel *machine_kernel(void *library, const char *name)
{
    cudaKernel_t kernel = NULL;
    if (cudaLibraryGetKernel(&kernel, (cudaLibrary_t)library, name) != cudaSuccess)
        return NULL;
    return (EmulatorKernel *)(uintptr_t)kernel;
}

/* --- Memory -------------------------------------------------------------------------------------- */

void emulator_add_memory(const char *name, void *base, int64_t bytes)
{
    void *device;
    check(cudaMalloc(&device, (size_t)bytes + GUARD), name);
    memories[nmemories++] = (Memory){ base, device, bytes };
}

void emulator_allow(void *from, int64_t bytes, bool is_written) {}
bool emulator_is_written(const void *at) { return true; }
int64_t emulator_bytes_moved(void) { return -1; }
double emulator_times_read(void) { return 0; }

void emulator_forget_memory(void)
{
    while (nmemories > 0)
        check(cudaFree(memories[--nmemories].device), "free memory");
}

static void copy_all(bool back)
{
    for (Memory *m = memories; m < memories + nmemories; m++)
        check(cudaMemcpyAsync(back ? m->base : m->device, back ? m->device : m->base, (size_t)m->bytes,
                              back ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
              "copy operands");
    check(cudaStreamSynchronize(stream), "run a kernel");
}

static void *on_device(const void *at)
{
    for (const Memory *m = memories; m < memories + nmemories; m++)
        if ((const char *)at >= m->base && (const char *)at <= m->base + m->bytes)
            return m->device + ((const char *)at - m->base);
    return NULL;
}

bool emulator_launch(const char *name, EmulatorKernel *kernel, void **arguments, int count, int64_t blocks, int threads,
                     int64_t dynamic_shared)
{
    void *pointer[EMULATOR_MAX_ARGUMENTS], *at[EMULATOR_MAX_ARGUMENTS];
    for (int i = 0; i < count; i++) {
        pointer[i] = on_device(arguments[i]);
        at[i] = &pointer[i];
    }
    const void *function = (const void *)(uintptr_t)kernel;
    check(cudaKernelSetAttributeForDevice((cudaKernel_t)(uintptr_t)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)dynamic_shared, 0),
          name);
    copy_all(false);
    check(cudaLaunchKernel(function, (dim3){ (unsigned)blocks, 1, 1 }, (dim3){ (unsigned)threads, 1, 1 }, at,
                           (size_t)dynamic_shared, stream),
          name);
    copy_all(true);
    return true;
}

void machine_set_rank(void *library, int rank)
{
    int number = rank;
    int kept = nmemories;
    EmulatorKernel *kernel = machine_kernel(library, "emulated_rank_kernel");
    emulator_add_memory("rank", &number, sizeof number);
    emulator_launch("emulated_rank_kernel", kernel, (void *[]){ &number }, 1, 1, 1, 0);
    check(cudaFree(memories[--nmemories].device), "free memory");
    if (nmemories != kept)
        abort();
}
