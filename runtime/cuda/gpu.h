/* gpu.h -- inside the runtime for GPUs; nobody else includes it.
 *
 *   gpu.c         which GPU, its memory, copies
 *   run.c         functions of the program: from what is staged to the end, by launches or by a recorded graph
 *   kernels.c     kernels from their text to launches;  cache.c keeps them compiled
 *   product.c     products, through cuBLASLt
 *   nccl.c        collectives, through NCCL;  message.c puts their messages together and takes them apart
 *   library.c     CUDA's libraries, which are found when the trainer starts
 *
 * Everything that a function of the program does is put into the queue of one stream, `compute`; collectives have
 * streams of their own.
 */
#ifndef MPC_CUDA_GPU_H
#define MPC_CUDA_GPU_H

#include "device.h"
#include "mesh/comm.h"

#include <cuda_runtime_api.h>

struct RtGpuKernels;     /* kernels.c */
struct RtGpuProducts;    /* product.c */
struct RtGpuCollectives; /* nccl.c: NULL on one rank */
struct RtGpuMessages;    /* message.c: the same */
struct RtGpuRuns;        /* run.c */

struct RtGpu {
    int number;          /* of the device, as CUDA counts those that are visible */
    char name[64];       /* "gpu 0 (NVIDIA H200)" */
    int major, minor;    /* of its compute capability: 9.0 */
    int64_t most_shared; /* bytes of shared memory of a block */
    cudaStream_t compute;
    char *numbers; /* pinned memory of the processor, for what is small: the loss, a row of logits */
    char *memory;  /* all that is allocated; in it: */
    char *product_space, *message_space;
    int64_t message_bytes; /* what rt_gpu_message_bytes has found: each step's report asks for it */
    RtDeviceOptions options;
    struct RtGpuKernels *kernels;
    struct RtGpuProducts *products;
    struct RtGpuCollectives *collectives;
    struct RtGpuMessages *messages;
    struct RtGpuRuns *runs;
};

/* Ends the trainer if CUDA has refused something: "gpu 3 cannot WHAT: an illegal memory access was encountered". */
#define rt_gpu_check(rt, status, what) rt_gpu_check_status((rt), (int)(status), (what))
void rt_gpu_check_status(const Rt *rt, int status, const char *what);

/* --- run.c ---------------------------------------------------------------------------------- */

void rt_gpu_runs_open(Rt *rt);
void rt_gpu_runs_close(Rt *rt);

/* Until the computation has come to the end of its queue, or NCCL to its time-out. */
void rt_gpu_finish(Rt *rt);

double rt_gpu_mark(Rt *rt, cudaStream_t stream); /* rt_mark, in another queue */

/* --- kernels.c, cache.c --------------------------------------------------------------------- */

void rt_gpu_kernels_open(Rt *rt);
void rt_gpu_kernels_close(Rt *rt);
cudaKernel_t rt_gpu_kernel(Rt *rt, const char *name); /* one that no table of launches has */

/* An index out of range that kernels have met: asked for in the queue of the computation, and once that has come to its
 * end, the end of the trainer. */
void rt_gpu_index_ask(Rt *rt);
void rt_gpu_index_check(const Rt *rt);

/* What was kept under this key, or NULL; the caller's. */
void *rt_cache_find(const char *folder, const char *key, size_t *bytes);
/* Ends the trainer where it cannot be written. */
void rt_cache_keep(const char *folder, const char *key, const void *data, size_t bytes);
/* Of several ranks of a machine one compiles, and the others wait for what it keeps.  Where a file system has no locks,
 * each compiles. */
typedef struct {
    int file;
    char *path;
} RtCacheLock;
RtCacheLock rt_cache_lock(const char *folder, const char *key);
void rt_cache_unlock(RtCacheLock *lock);
char *rt_cache_folder(const char *option); /* that exists; the caller's */

/* --- product.c ------------------------------------------------------------------------------ */

void rt_gpu_products_open(Rt *rt);

/* --- nccl.c --------------------------------------------------------------------------------- */

/* The computation waits for all collectives that were started, waited for or not. */
void rt_gpu_collectives_join(Rt *rt);

/* Called again and again while the processor waits for the end of what began `seconds` ago: ends the trainer when NCCL
 * reports an error, or when nothing has gone on for the time-out. */
void rt_gpu_collectives_watch(Rt *rt, double seconds);

/* --- message.c ------------------------------------------------------------------------------ */

/* Makes tables in `memory`; the end of what is taken, where the workspaces of groups begin. */
char *rt_gpu_messages_open(Rt *rt, char *memory);
void rt_gpu_messages_close(Rt *rt);

int64_t rt_gpu_message_bytes(const Rt *rt);                     /* tables, and a workspace for each group */
int64_t rt_gpu_group_space(const Rt *rt, const RtGroup *group); /* bytes of a group's workspace: of its largest use */

/* Puts the messages of collective `id` together where they are not in one piece; messages[i]: those of tensor i, one
 * rank's behind the other's. */
void rt_gpu_pack(Rt *rt, int id, cudaStream_t stream, char *workspace, const void *const in[], char *messages[]);
/* Where messages are to come; and what is to be done once they have. */
void rt_gpu_expect(const Rt *rt, int id, char *workspace, void *const out[], char *messages[]);
void rt_gpu_unpack(Rt *rt, int id, cudaStream_t stream, char *workspace, void *const out[]);

/* --- library.c ------------------------------------------------------------------------------ */

/* Loads `file` ("libnccl.so.2") and finds its functions; ends the trainer where that fails.  `name` is for people. */
void rt_library_load(const char *name, const char *file, int count, const char *const symbols[], void *functions[]);

#endif
