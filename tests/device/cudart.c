/* cudart.c -- devices, memory, copies and launches, replaces CUDA's run-time library. */
#include "device.h"

#include "emulator/emulator.h"

#include "cuda/sizes.h"

#include <cuda_runtime_api.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <fnmatch.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_MEMORIES = 64, PAGE = 4096, HUGE_PAGE = 1 << 21, UNWRITTEN = 0xFF };

typedef struct {
    char *base, *all; /* with pages around it that nothing may touch */
    size_t bytes, mapped, all_mapped;
} Memory;

static Memory memories[MAX_MEMORIES];
static int nmemories, open_count;
static int64_t used_bytes, most_bytes;

/* --- Memory --------------------------------------------------------------------------------------- */

/* Variables of kernels. */
enum { MAX_VARIABLES = 256 };
static struct {
    const char *at;
    size_t bytes;
} variables[MAX_VARIABLES];
static int nvariables;

static bool is_variable(const char *at, size_t bytes)
{
    for (int i = 0; i < nvariables; i++)
        if (at >= variables[i].at && at + bytes <= variables[i].at + variables[i].bytes)
            return true;
    return false;
}

static const Memory *memory_of(const void *at)
{
    for (int i = 0; i < nmemories; i++)
        if ((const char *)at >= memories[i].base && (const char *)at < memories[i].base + memories[i].mapped)
            return &memories[i];
    return NULL;
}

/* The protection key of all memory: its rights change without a system call.  -1: this machine has none. */
static int protection_key(void)
{
    static int key = -2;
    if (key == -2)
        key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    return key;
}

static void protect(bool is_open)
{
    if (protection_key() >= 0)
        pkey_set(protection_key(), is_open ? 0 : PKEY_DISABLE_ACCESS);
    else
        for (int i = 0; i < nmemories; i++)
            mprotect(memories[i].base, memories[i].mapped, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void emulated_open_memory(void)
{
    if (open_count++ == 0)
        protect(true);
}

void emulated_close_memory(void)
{
    if (--open_count == 0)
        protect(false);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    if (memory_of(info->si_addr))
        emulated_fault("the processor touches memory of the device at %p", info->si_addr);
    emulated_fault("nothing is at address %p%s", info->si_addr, open_count ? ", which the device touches" : "");
}

static int64_t device_bytes(void) { return emulated_number("EMULATED_BYTES", INT64_C(4) << 30); }

static void write_most(void)
{
    FILE *out = fopen(getenv("EMULATED_USED"), "w");
    if (out && fprintf(out, "%lld\n", (long long)most_bytes) > 0 && fclose(out) == 0)
        return;
    emulated_fault("$EMULATED_USED cannot be written");
}

static void count_bytes(int64_t bytes)
{
    used_bytes += bytes;
    most_bytes = used_bytes > most_bytes ? used_bytes : most_bytes;
}

bool emulated_take(int64_t bytes)
{
    if (used_bytes + bytes > device_bytes())
        return false;
    count_bytes(bytes);
    return true;
}

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    emulated_forget_waits();
    if (nmemories == MAX_MEMORIES || used_bytes + (int64_t)bytes > device_bytes())
        return cudaErrorMemoryAllocation;
    size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    size_t before = mapped < HUGE_PAGE ? PAGE : HUGE_PAGE, all_mapped = mapped + 2 * before;
    char *all = mmap(NULL, all_mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    char *base = all + before - (uintptr_t)all % before; /* huge pages, since mprotect takes time for each */
    madvise(base, mapped, MADV_HUGEPAGE);
    memories[nmemories++] = (Memory){ base, all, bytes, mapped, all_mapped };
    mprotect(base, mapped, PROT_READ | PROT_WRITE);
    /* All begins with the workspace of products, which the emulated cuBLASLt leaves alone: its pages took a sixth of
     * the group's time. */
    const size_t unused = bytes > RT_GPU_PRODUCT_BYTES ? RT_GPU_PRODUCT_BYTES : 0;
    memset(base + unused, UNWRITTEN, mapped - unused);
    if (protection_key() < 0)
        mprotect(base, mapped, PROT_NONE);
    else if (pkey_mprotect(base, mapped, PROT_READ | PROT_WRITE, protection_key()))
        emulated_fault("the memory of the device cannot be protected");
    count_bytes((int64_t)bytes);
    *at = base;
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    for (int i = 0; i < nmemories; i++)
        if (memories[i].base == at) {
            used_bytes -= (int64_t)memories[i].bytes;
            munmap(memories[i].all, memories[i].all_mapped);
            memories[i] = memories[--nmemories];
            return cudaSuccess;
        }
    return at ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags)
{
    *at = calloc(1, bytes);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
    free(at);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = (size_t)device_bytes();
    *free_bytes = *total - (size_t)used_bytes;
    return cudaSuccess;
}

/* --- Copies ----------------------------------------------------------------------------------------- */

typedef struct {
    char *to;
    const char *from; /* NULL: `value` */
    size_t to_row, from_row, row, rows;
    int value;
} Copy;

static void check_range(const char *at, size_t bytes, bool is_device, const char *what)
{
    const Memory *memory = memory_of(at);
    if (is_device && is_variable(at, bytes))
        return;
    if (is_device != (memory != NULL))
        emulated_fault("a copy %s memory of the %s", what,
                       is_device ? "processor, as if it were the device's" : "device, as if it were the processor's");
    if (memory && at + bytes > memory->base + memory->bytes)
        emulated_fault("a copy %s %zu bytes beyond what was allocated", what,
                       (size_t)(at + bytes - memory->base - memory->bytes));
}

static void check_copy(const Copy *c, enum cudaMemcpyKind kind)
{
    if (c->rows == 0 || c->row == 0)
        return;
    check_range(c->to, (c->rows - 1) * c->to_row + c->row, kind != cudaMemcpyDeviceToHost, "to");
    if (c->from)
        check_range(c->from, (c->rows - 1) * c->from_row + c->row, kind != cudaMemcpyHostToDevice, "from");
}

static bool work_copy(void *data)
{
    const Copy *c = data;
    for (size_t i = 0; i < c->rows; i++)
        if (c->from)
            memmove(c->to + i * c->to_row, c->from + i * c->from_row, c->row);
        else
            memset(c->to + i * c->to_row, c->value, c->row);
    return true;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_row, const void *from, size_t from_row, size_t row, size_t rows,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    Copy copy = { to, from, to_row, from_row, row, rows, 0 };
    if (to_row < row || from_row < row)
        return cudaErrorInvalidPitchValue;
    check_copy(&copy, kind);
    emulated_enqueue(stream, work_copy, &copy, sizeof copy);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    Copy copy = { at, NULL, bytes, bytes, bytes, 1, value };
    check_copy(&copy, cudaMemcpyDeviceToDevice);
    emulated_enqueue(stream, work_copy, &copy, sizeof copy);
    return cudaSuccess;
}

/* --- Devices ------------------------------------------------------------------------------------------ */

cudaError_t cudaGetDeviceCount(int *count)
{
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    sigaction(SIGSEGV, &action, NULL);
    if (getenv("EMULATED_USED"))
        atexit(write_most);
    *count = (int)emulated_number("EMULATED_GPUS", 1);
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

static int64_t shared_limit(void) { return emulated_number("EMULATED_SHARED", 227 * 1024); }

static int device_in_use;

cudaError_t cudaSetDevice(int device)
{
    device_in_use = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_in_use;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}

/* Which GPU a number means may differ from rank to rank: $EMULATED_FIRST is that of number 0. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    memset(properties, 0, sizeof *properties);
    const char *name = getenv("EMULATED_NAME");
    snprintf(properties->name, sizeof properties->name, "%s", name ? name : "emulated");
    properties->major = (int)emulated_number("EMULATED_ARCHITECTURE", 90) / 10;
    properties->minor = (int)emulated_number("EMULATED_ARCHITECTURE", 90) % 10;
    properties->sharedMemPerBlockOptin = (size_t)shared_limit();
    properties->uuid.bytes[0] = (char)(1 + device + emulated_number("EMULATED_FIRST", 0));
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    return snprintf(id, (size_t)size, "0000:C%d:00.0", device) < size ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t status)
{
    static char text[40];
    snprintf(text, sizeof text, "emulated error %d", (int)status);
    return text;
}

/* --- Tensor maps -------------------------------------------------------------------------------------- */

static bool maps_are(const char *what)
{
    const char *said = getenv("EMULATED_MAPS");
    return said && strcmp(said, what) == 0;
}

/* Only of the kind that the emulator knows. */
static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t dims, void *base, const cuuint64_t *size,
                       const cuuint64_t *stride, const cuuint32_t *box, const cuuint32_t *each,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill)
{
    bool good = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    for (cuuint32_t i = 0; i < dims; i++)
        good = good && each[i] == 1;
    if (maps_are("wrong") && size[1] > 1)
        base = (char *)base + stride[0];
    return good && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && swizzle == CU_TENSOR_MAP_SWIZZLE_128B &&
                   fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
                   emulator_make_map(map, (int)dims, base, size, stride, box)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result)
{
    const PFN_cuTensorMapEncodeTiled_v12000 known = encode;
    const bool is_known = strcmp(name, "cuTensorMapEncodeTiled") == 0 && version >= 12000 && !maps_are("none");
    *function = NULL;
    if (is_known)
        memcpy(function, &known, sizeof known);
    *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

/* --- Kernels ------------------------------------------------------------------------------------------ */

enum { MAX_KERNELS = 4096, MAX_MAPS = 3 };

struct CUkern_st {
    char name[160];
    EmulatorKernel *run;
    int arguments, maps; /* the first of them are tensor maps */
    int64_t declared;    /* bytes of shared memory that every launch has */
    int64_t shared;      /* bytes that a launch may ask for beside them */
    bool is_loaded;
    struct CUkern_st *next; /* of its library */
};

struct CUlib_st {
    void *handle;
    struct CUkern_st *kernels;
};

/* The code is a library for this processor (nvrtc.c). */
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit, void **jit_values,
                                unsigned njit, enum cudaLibraryOption *options, void **option_values, unsigned noptions)
{
    size_t bytes;
    memcpy(&bytes, code, sizeof bytes);
    char path[64];
    int file = memfd_create("kernels", 0);
    if (file < 0 || write(file, (const char *)code + sizeof bytes, bytes) != (ssize_t)bytes)
        return cudaErrorInvalidKernelImage;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    *library = calloc(1, sizeof **library);
    (*library)->handle = dlopen(path, RTLD_NOW);
    close(file);
    if (!(*library)->handle)
        emulated_fault("kernels cannot be loaded: %s", dlerror());
    emulator_skip_memory();
    return cudaSuccess;
}

static bool work_launch(void *data);

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    for (const struct CUkern_st *kernel = library->kernels; kernel; kernel = kernel->next)
        if (emulated_is_recorded(work_launch, kernel))
            emulated_fault("%s is unloaded before a graph that launches it", kernel->name);
    dlclose(library->handle);
    free(library);
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    char symbol[200];
    *kernel = calloc(1, sizeof **kernel);
    snprintf((*kernel)->name, sizeof(*kernel)->name, "%s", name);
    snprintf(symbol, sizeof symbol, "%s_emulated", name);
    (*kernel)->run = (EmulatorKernel *)(intptr_t)dlsym(library->handle, symbol);
    snprintf(symbol, sizeof symbol, "%s_arguments", name);
    const int *arguments = dlsym(library->handle, symbol);
    snprintf(symbol, sizeof symbol, "%s_declared", name);
    const long *declared = dlsym(library->handle, symbol);
    snprintf(symbol, sizeof symbol, "%s_maps", name);
    const int *maps = dlsym(library->handle, symbol);
    if (!(*kernel)->run || !arguments || !declared || !maps || *maps > MAX_MAPS)
        return cudaErrorSymbolNotFound;
    (*kernel)->arguments = *arguments;
    (*kernel)->maps = *maps;
    (*kernel)->declared = *declared;
    (*kernel)->shared = 48 * 1024 - *declared;
    (*kernel)->next = library->kernels;
    library->kernels = *kernel;
    return cudaSuccess;
}

/* A constant ends with its section at the latest: where it begins one, the symbol that is found may be the section's.
 */
static size_t size_of(cudaLibrary_t library, const char *at, const ElfW(Sym) * symbol)
{
    char *const *begin = dlsym(library->handle, "emulated_constant_begin");
    char *const *end = dlsym(library->handle, "emulated_constant_end");
    return symbol->st_size == 0 && begin && end && *begin <= at && at < *end ? (size_t)(*end - at) : symbol->st_size;
}

cudaError_t cudaLibraryGetGlobal(void **at, size_t *bytes, cudaLibrary_t library, const char *name)
{
    Dl_info info;
    const ElfW(Sym) * symbol;
    *at = dlsym(library->handle, name);
    if (!*at || !dladdr1(*at, &info, (void **)&symbol, RTLD_DL_SYMENT))
        return cudaErrorSymbolNotFound;
    *bytes = size_of(library, *at, symbol);
    if (nvariables == MAX_VARIABLES)
        emulated_fault("more than %d variables of kernels", MAX_VARIABLES);
    variables[nvariables].at = *at;
    variables[nvariables++].bytes = *bytes;
    return cudaSuccess;
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attribute, int value,
                                            int device)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value + kernel->declared > shared_limit())
        return cudaErrorInvalidValue;
    kernel->shared = value;
    return cudaSuccess;
}

/* It may return before the copy has ended, and non-blocking streams do not wait for the default stream. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    emulated_fault("cudaMemcpy is not ordered with non-blocking streams: copy in a stream");
}

typedef struct {
    cudaKernel_t kernel;
    int64_t blocks, shared;
    int threads;
    CUtensorMap map[MAX_MAPS];
    void *argument[EMULATOR_MAX_ARGUMENTS];
} Launch;

static void be_slow(const char *name)
{
    const char *pattern = getenv("EMULATED_SLOW_KERNELS");
    if (pattern && fnmatch(pattern, name, FNM_EXTMATCH) == 0)
        emulated_take_longer(1000);
}

static bool work_launch(void *data)
{
    Launch *l = data;
    CUtensorMap map[MAX_MAPS]; /* at addresses that are multiples of 64 */
    memcpy(map, l->map, sizeof map);
    for (int i = 0; i < l->kernel->maps; i++)
        l->argument[i] = &map[i];
    be_slow(l->kernel->name);
    if (!emulator_launch(l->kernel->name, l->kernel->run, l->argument, l->kernel->arguments, l->blocks, l->threads,
                         l->shared))
        emulated_fault("%s fails", l->kernel->name);
    return true;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 blocks, dim3 threads, void **arguments, size_t shared,
                             cudaStream_t stream)
{
    Launch launch = {
        (cudaKernel_t)(uintptr_t)function, blocks.x, (int64_t)shared, (int)threads.x, { { { 0 } } }, { NULL }
    };
    if (launch.shared > launch.kernel->shared || launch.kernel->arguments > EMULATOR_MAX_ARGUMENTS)
        return cudaErrorInvalidValue;
    if (!launch.kernel->is_loaded)
        emulated_load();
    launch.kernel->is_loaded = true;
    for (int i = 0; i < launch.kernel->arguments; i++)
        if (i < launch.kernel->maps)
            memcpy(&launch.map[i], arguments[i], sizeof launch.map[i]);
        else
            memcpy(&launch.argument[i], arguments[i], sizeof(void *));
    emulated_enqueue(stream, work_launch, &launch,
                     offsetof(Launch, argument) + (size_t)launch.kernel->arguments * sizeof(void *));
    return cudaSuccess;
}
