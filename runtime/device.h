/* device.h -- the interface of the runtime to the device.
 *
 * There are two devices, and a trainer links one: the processor (processor.c, product.c, collective.c, in libmpcrt.a)
 * or a GPU (cuda/, in libmpcrt_cuda.a).  Offsets are bytes in the arena.  Work queued on the device by a function
 * appears completed to the next of these functions. */
#ifndef MPC_RUNTIME_DEVICE_H
#define MPC_RUNTIME_DEVICE_H

#include "state.h"

#include <stdatomic.h>

/* The trainer's options for GPUs. */
typedef struct {
    const char *kernel_cache; /* NULL: the default cache folder */
    bool no_graph, no_cudnn, no_hopper, no_fp8, share_gpu, nccl_memory;
} RtDeviceOptions;

/* Opens the device, with workspaces; then collectives open, which may take memory that is in no plan; then the zeroed
 * arena.  If the arena does not fit, ends the trainer with an error that states planned and available bytes. */
void rt_device_open(Rt *rt, RtDeviceOptions options);
void rt_arena_open(Rt *rt);
void rt_device_close(Rt *rt);

/* --- Memory --------------------------------------------------------------------------------- */

void rt_zero(Rt *rt, int64_t offset, int64_t bytes);
void rt_download(const Rt *rt, void *to, int64_t offset, int64_t bytes);

/* Sets the initial values of these tensors. */
void rt_fill_initial(Rt *rt, int count, const RtInitial *tensors);
int64_t rt_initial_bytes(const RtInitial *tensor); /* from its first element to the end of its last */

/* A buffer for data to be in the arena when a function of the program next runs.  The same buffer for the same offset,
 * with its previous contents. */
void *rt_upload_place(Rt *rt, int64_t offset, int64_t bytes);

/* Maps bytes of the arena into host memory, until closed. */
char *rt_window_open(const Rt *rt, int64_t offset, int64_t bytes);
void rt_window_close(const Rt *rt, char *window, int64_t offset, int64_t bytes, bool is_changed);

/* --- Copies of what outlives a step, in host memory: copies.c of the device ------------------------ */

typedef struct {
    int64_t offset, bytes, at; /* in the arena, or behind it in memory of the host; at: bytes in the copy before it */
} RtSpan;

/* Host memory for copies, which may be large; NULL: this rank may not use so much more. */
char *rt_copies_allocate(Rt *rt, int64_t bytes);
void rt_copies_free(Rt *rt, char *memory);
int64_t rt_copies_bytes(const Rt *rt); /* of these, on the device itself */
double rt_copies_waited(const Rt *rt); /* seconds that steps have waited for a copy; on a GPU NAN */

enum { RT_COPY_CHUNK = 4 << 20 }; /* bytes */

/* Copies these bytes to host memory: spans and copy are left alone until rt_copy_wait.  A GPU copies beside what it
 * computes; a processor copies in rt_copy_wait, which a step calls before it changes them, only the chunks that
 * somebody still needs: needed[i] > 0, or all if it is NULL.  True: until then they are read by rt_copy_hold. */
bool rt_copy_start(Rt *rt, int count, const RtSpan *span, char *to, const atomic_int *needed);
void rt_copy_wait(Rt *rt); /* also without one under way */

/* For one reader, in a thread beside that of the steps.  True: the bytes that belong to this copy are in the arena, and
 * are read there up to rt_copy_release, soon; false: they are in the copy.  Release returns false if the arena has
 * changed meanwhile: what was read is worth nothing. */
bool rt_copy_hold(Rt *rt, const char *to);
bool rt_copy_release(Rt *rt); /* if they were in the arena */

/* And back, at once. */
void rt_copy_back(Rt *rt, int count, const RtSpan *span, const char *from);

/* --- Functions ------------------------------------------------------------------------------ */

/* Runs the function to completion, on the data that have been fed. */
void rt_run(Rt *rt, const RtFunction *f);

/* An action of a pipeline. */
void rt_run_action(Rt *rt, const RtPipeline *p, RtAction action, int chunk, int64_t micro, char *arena);

/* Does the device call rt_pipeline again, when it has recorded what is around it? */
bool rt_defers_pipeline(Rt *rt, const RtPipeline *p);

/* A time mark in the computation: in seconds of rt_seconds, valid after the function has completed. */
double rt_mark(Rt *rt);
double rt_time_of_mark(Rt *rt, double mark);

/* --- Products: see rt.h ------------------------------------------------------------------------ */

/* After all have been created, with a zeroed arena, which it uses and zeroes again: chooses the fastest of the
 * library's kernels, where it leaves that to us.  All ranks call it. */
void rt_libraries_choose(Rt *rt);
void rt_products_free(Rt *rt);                      /* also valid before any product was created */
int64_t rt_libraries_workspace_bytes(const Rt *rt); /* memory of products and attention outside the arena */
double
rt_product_peak(Rt *rt,
                double seconds); /* flops/s of the device's best f32 or bf16 product; NAN: no memory to measure it */

/* --- What --probe times, in memory of the arena ------------------------------------------------
 *
 * Like work of the program: on a GPU it is queued on the compute stream. */
void rt_probe_fill(Rt *rt, char *memory, int64_t bytes); /* numbers near 1, as operands */
void rt_probe_launch(Rt *rt, char *memory);              /* a kernel that does next to nothing */
void rt_probe_copy(Rt *rt, char *to, const char *from, int64_t bytes);

/* A fused kernel, gelu of x and a bias, and a residual, in at most so many bytes of memory; in few of them its
 * arithmetic takes the time, on a processor, in many their movement.  What it does: FLOPs as ir/ops.def counts them. */
enum { RT_PROBED_FLOPS = 14 }; /* of an element: gelu_tanh 12, and two sums */
typedef struct {
    double flops, moved; /* bytes */
} RtProbedKernel;
RtProbedKernel rt_probe_fused(Rt *rt, char *memory, int64_t bytes);

/* The code of the program, and that kernel; on a processor NULL: the program names its kernels. */
const RtCode *rt_probe_code(const RtCode *code);

/* Attention i, or its gradient, in `bytes` of memory; false: there are only i. */
typedef struct {
    RtType type;
    bool is_gradient;
    int64_t keys, features, bytes;
    double flops; /* of those elements that are computed */
} RtProbedAttention;
bool rt_probe_attention(const Rt *rt, int i, RtProbedAttention *what);
void rt_probe_attend(Rt *rt, int i, char *memory);

double rt_probe_memory(const Rt *rt); /* bytes that a rank may use */

/* --- Collectives: see rt.h --------------------------------------------------------------------- */

void rt_collectives_open(Rt *rt); /* all ranks call it, with the device open */
void rt_collectives_close(Rt *rt);
int64_t rt_collectives_workspace_bytes(const Rt *rt);

/* What a library has taken of the device for them: "12.6 MB by NCCL (4.2 MB over dp, 8.4 MB over tp)", or NULL; owned
 * by the caller. */
char *rt_collectives_taken(const Rt *rt);

#endif
