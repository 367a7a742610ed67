/* gpu.h -- internals of the runtime for GPUs.
 *
 *   gpu.c         selection of the GPU, its memory;  bytes.c  copies
 *   run.c         functions of the program: staged inputs, launches or a recorded graph
 *   kernels.c     compilation and launches of kernels;  cache.c stores compiled kernels
 *   initial.c     initial values
 *   product.c     products, through cuBLASLt;  tune.c chooses among its kernels;  eight_bits.c: those of 8 bits
 *   attention.c   attention, through cuDNN or by kernels, one of which is for Hopper (attention_hopper.c);
 *                 attention_choose.c compares them
 *   peak.c        the speed of the best product, which utilisation is compared with
 *   nccl_open.c   communicators of NCCL;  nccl.c queues collectives on them;  message.c packs and unpacks messages;
 *                 watch.c notices collectives that hang
 *   copies.c      copies of state in pinned memory of the host, for checkpoints
 *   fetch.c       offloaded tensors, in pinned memory of the host
 *   near.c        the processors near the GPU
 *   library.c     loading of CUDA's libraries when the trainer starts
 *
 * All work of a function of the program is queued on one stream, `compute`; collectives have separate streams.
 */
#ifndef MPC_CUDA_GPU_H
#define MPC_CUDA_GPU_H

#include "device.h"
#include "mesh/comm.h"

#include <cuda_runtime_api.h>

struct RtGpuKernels;     /* kernels.c */
struct RtGpuProducts;    /* product.c */
struct RtGpuAttentions;  /* attention.c: NULL without any */
struct RtGpuCollectives; /* nccl_open.c: NULL on one rank */
struct RtGpuMessages;    /* message.c: the same */
struct RtGpuRuns;        /* run.c */

enum { RT_GPU_NUMBERS = 4096 }; /* bytes */

struct RtGpu {
    int number;          /* of the device, among those visible to CUDA */
    char name[64];       /* "gpu 0 (NVIDIA H200)" */
    char model[64];      /* "NVIDIA H200, sm_90" */
    double sheet[2];     /* flops/s of its best products in f32 and in 16 bits by its data sheet; 0: unknown */
    int major, minor;    /* of its compute capability: 9.0 */
    int64_t most_shared; /* maximum of shared memory per block, in bytes */
    cudaStream_t compute;
    char *numbers; /* pinned host memory, for small data: the loss, a row of logits */
    char *spaces;  /* the allocation of workspaces, beside that of the arena; in it: */
    char *product_space, *message_space;
    int64_t attention_bytes; /* of cuDNN's workspace, a separate allocation */
    char *encode_space;      /* of operands in 8 bits, another one; NULL: there are none */
    int64_t encode_bytes;
    int64_t message_bytes; /* cached result of rt_gpu_message_bytes, used in each step's report */
    RtDeviceOptions options;
    struct RtGpuKernels *kernels;
    struct RtGpuProducts *products;
    struct RtGpuAttentions *attentions;
    struct RtGpuCollectives *collectives;
    struct RtNcclMemory *nccl_memory; /* NULL: the arena is CUDA's */
    struct RtGpuMessages *messages;
    struct RtGpuRuns *runs;
};

/* Ends the trainer if a CUDA call has failed: "gpu 3 cannot WHAT: an illegal memory access was encountered". */
#define rt_gpu_check(rt, status, what) rt_gpu_check_status((rt), (int)(status), (what))
void rt_gpu_check_status(const Rt *rt, int status, const char *what);

/* Does it have the instructions of sm_90a? */
static inline bool rt_gpu_is_hopper(const struct RtGpu *gpu) { return gpu->major == 9 && gpu->minor == 0; }

/* --- bytes.c -------------------------------------------------------------------------------- */

size_t rt_gpu_unused(const Rt *rt); /* bytes that CUDA can still allocate, of whatever process */

/* What each rank may allocate besides the planned memory; all call it. */
int64_t rt_gpu_free_memory(Rt *rt);

/* Copies behind what is queued on the compute stream, and waits.  The copy is owned by the caller. */
void rt_gpu_upload(const Rt *rt, void *to, const void *from, int64_t bytes);
void *rt_gpu_downloaded(const Rt *rt, const void *from, int64_t bytes);

/* --- near.c --------------------------------------------------------------------------------- */

/* From here on this process runs on the processors near its GPU, where that is known and a launcher has not chosen
 * others; a note says so. */
void rt_gpu_stay_near(const Rt *rt);

/* --- run.c ---------------------------------------------------------------------------------- */

void rt_gpu_runs_open(Rt *rt);
void rt_gpu_runs_close(Rt *rt);
void rt_gpu_graphs_close(Rt *rt); /* before the communicators whose collectives they contain */

double rt_gpu_mark(Rt *rt, cudaStream_t stream); /* rt_mark, on another stream */

/* --- kernels.c, cache.c --------------------------------------------------------------------- */

void rt_gpu_kernels_open(Rt *rt);
void rt_gpu_kernels_close(Rt *rt);
cudaKernel_t rt_gpu_kernel(Rt *rt, const char *name); /* one that is not in the table of launches */

const char *rt_gpu_kernels_header(void); /* all of runtime/cuda/ that kernels include */

/* An index out of range, recorded by kernels: `ask` queues a copy on the compute stream; `check`, after its completion,
 * ends the trainer. */
void rt_gpu_index_ask(Rt *rt);
void rt_gpu_index_check(const Rt *rt);

/* The data stored under this key, or NULL; owned by the caller. */
void *rt_cache_find(const char *folder, const char *key, size_t *bytes);
/* Ends the trainer if it cannot be written. */
void rt_cache_keep(const char *folder, const char *key, const void *data, size_t bytes);
/* One rank of each machine compiles, and the others wait for the stored result.  On a file system without locks, each
 * compiles. */
typedef struct {
    int file;
    char *path;
} RtCacheLock;
RtCacheLock rt_cache_lock(const char *folder, const char *key);
void rt_cache_unlock(RtCacheLock *lock);
char *rt_cache_key(int count, const char *const texts[], const char *suffix); /* a hash of the texts: HASH.SUFFIX */
char *rt_cache_folder(const char *option); /* created if missing; owned by the caller */

/* --- product.c ------------------------------------------------------------------------------ */

void rt_gpu_products_open(Rt *rt);
int rt_gpu_products_count(const Rt *rt); /* the number of the next one */

/* --- tune.c --------------------------------------------------------------------------------- */

/* Chooses the fastest kernels of all products. */
void rt_gpu_products_choose(Rt *rt);

/* Milliseconds of one run of `queue`, after a first one, which loads kernels; infinity if it is false. */
double rt_gpu_time(Rt *rt, bool (*queue)(Rt *rt, void *data), void *data);

/* Replaces `choices` by those of the lowest rank with an equal GPU and library: what ranks compute redundantly must
 * stay equal.  All ranks call it. */
void rt_gpu_agree(Rt *rt, size_t version, void *choices, int64_t bytes);

/* 32 random bits for operands of a trial (xorshift32, https://doi.org/10.18637/jss.v008.i14); the state is not 0. */
uint32_t rt_gpu_random(uint32_t *state);

/* --- eight_bits.c --------------------------------------------------------------------------- */

/* Chooses the products that are computed in 8 bits.  All ranks call it, after the other choices for products. */
void rt_gpu_eights_choose(Rt *rt);

/* --- attention.c, attention_choose.c --------------------------------------------------------- */

void rt_gpu_attentions_open(Rt *rt);
void rt_gpu_attentions_choose(Rt *rt); /* all ranks call it */
void rt_gpu_attentions_close(Rt *rt);  /* after the graphs that use it */

/* --- peak.c --------------------------------------------------------------------------------- */

void rt_gpu_find_sheet(struct RtGpu *gpu, const char *model); /* sets `sheet` */

/* Numbers near 1 with random bits, in bf16 or f32: a product of zeros needs less power and is therefore faster. */
void rt_gpu_fill(Rt *rt, char *memory, int64_t bytes);

/* --- nccl.c --------------------------------------------------------------------------------- */

/* Makes the compute stream wait for all started collectives; `used`: for those that share a group with one of these. */
void rt_gpu_transfers_join(Rt *rt); /* fetch.c: the same for those from and to the host */
void rt_gpu_collectives_join(Rt *rt, const RtTraffic *used);

/* --- watch.c -------------------------------------------------------------------------------- */

/* Around a function of the program: a thread ends the trainer if NCCL reports an error, or after the time-out without
 * progress. */
void rt_gpu_watch_begin(Rt *rt);
void rt_gpu_watch_end(Rt *rt);

/* --- message.c ------------------------------------------------------------------------------ */

/* Creates tables in `memory`; returns their end, where the workspaces of groups begin. */
char *rt_gpu_messages_open(Rt *rt, char *memory);
void rt_gpu_messages_close(Rt *rt);

int64_t rt_gpu_message_bytes(const Rt *rt);                     /* tables, and a workspace for each group */
int64_t rt_gpu_group_space(const Rt *rt, const RtGroup *group); /* bytes: the maximum of its collectives */

/* A counter of a collective in the GPU's memory, and where the host sees it. */
typedef struct {
    unsigned char *at, *shown;
} RtGpuCount;

/* Packs the messages of collective `id` that are not contiguous; messages[i]: those of tensor i, in rank order.  Its
 * kernel counts; false if there is none. */
bool rt_gpu_pack(Rt *rt, int id, cudaStream_t stream, char *workspace, const void *const in[], char *messages[],
                 RtGpuCount count);
/* Sets the receive buffers of messages; and unpacks received messages, and counts. */
void rt_gpu_expect(const Rt *rt, int id, char *workspace, void *const out[], char *messages[]);
bool rt_gpu_unpack(Rt *rt, int id, cudaStream_t stream, char *workspace, void *const out[], RtGpuCount count);

/* Does a piece write where one of those from `first` on, before it, reads?  `to`, `from`: their messages, as above. */
bool rt_gpu_writes_over(const RtCollective *c, int ranks, int first, int piece, char *const to[], char *const from[]);

/* --- library.c ------------------------------------------------------------------------------ */

/* Loads `file` ("libnccl.so.2") and finds its functions; ends the trainer on failure.  `name` is for messages. */
void rt_library_load(const char *name, const char *file, int count, const char *const symbols[], void *functions[]);

/* The same for a library that need not be there: false if it is not, or lacks a function. */
bool rt_library_find(const char *file, int count, const char *const symbols[], void *functions[]);

#endif
