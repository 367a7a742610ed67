/* rt.h -- what a trainer links: the only header that generated code includes from the runtime.
 *
 * A trainer is a constant `RtProgram` (tables and three functions, written by mpc) and this
 * library.  `rt_main` reads the options, fills the arena, and calls the program's functions; they
 * call back for products (rt_product) and include runtime/kernels/ for everything else that does not depend on the
 * model.  All device memory is one arena whose layout the compiler has planned.
 *
 * Letters: M, N, K the sizes of a product; B sequences in a micro-batch; S sequence length.
 * Sizes and strides count elements unless a name says bytes.  Times are seconds.
 */
#ifndef MPC_RT_H
#define MPC_RT_H

#include <stdbool.h>
#include <stdint.h>

enum { RT_MAX_RANK = 8 };

typedef enum { RT_F32, RT_BF16, RT_F16, RT_I32, RT_BOOL } RtType;

typedef enum { RT_ZEROS, RT_ONES, RT_NORMAL, RT_UNIFORM, RT_CONSTANT } RtInitKind;

/* zeros, ones; normal: standard deviation a; uniform: from a to b; constant: a. */
typedef struct {
    RtInitKind kind;
    double a, b;
} RtInit;

/* A tensor that outlives a step: a parameter, or a part of the optimizer's state.
 *
 * `name` is its path with one '*' for each enclosing repeat: "h.*.attn.wq".  The first `copies`
 * dims count those: a checkpoint holds one tensor for each copy, named with the copy's number,
 * with the remaining dims.  Padding is never written to a file: `size` is the logical size, and
 * `stride` says where elements lie in the arena. */
typedef struct {
    const char *name;  /* "h.*.attn.wq" */
    const char *state; /* NULL for a parameter, else which state of it: "m", "v", "momentum"; or a scalar's name */
    RtType type;
    int rank, copies;
    const char *dim[RT_MAX_RANK];
    int64_t size[RT_MAX_RANK], stride[RT_MAX_RANK];
    int64_t offset;       /* bytes, in the arena */
    int64_t stored_bytes; /* bytes from offset that belong to it, padding included; zeroed at start */
    RtInit init;
} RtTensor;

/* An i32 tensor that the trainer fills before a step: [micro-batches, B, S], or what is left of
 * these dims.  Element (u, b, s) of `shift` k is the token s + k of sequence u * B + b. */
typedef struct {
    const char *name;
    int64_t offset; /* bytes, in the arena */
    int shift;      /* 0: tokens, 1: one later (next) */
    int64_t vocab;  /* tokens must be below it; 0: not used as an index */
} RtInput;

/* Scalars that the trainer writes into the arena before a step and reads after it.
 * Offsets in bytes; -1 where the program has no use for one. */
typedef struct {
    int64_t step;       /* in, i32: the number of the step, from 0 */
    int64_t lr;         /* in, f32: learning rate of this step */
    int64_t key;        /* in, i32: dropout's key, a hash of (seed, step) */
    int64_t loss;       /* out, f32: mean over the whole batch */
    int64_t grad_norm;  /* out, f32: before clipping */
    int64_t loss_scale; /* out, f32: fp16 only */
} RtScalars;

typedef enum { RT_CONSTANT_LR, RT_LINEAR, RT_COSINE, RT_WSD } RtScheduleKind;

typedef struct {
    RtScheduleKind kind;
    double lr, min_lr;
    int64_t warmup, steps, decay;
} RtSchedule;

typedef struct Rt Rt;

/* One function of the program: a whole training step, an evaluation, a prediction.
 * `run` is NULL where the model has no such function. */
typedef struct {
    void (*run)(Rt *rt, char *arena);
    const RtInput *inputs;
    int ninputs;
    RtScalars scalars;
    int64_t micro, batch, seq; /* of its inputs: sequences a call = micro * batch */
    int64_t logits;            /* predict only: bytes offset of f32 [batch, seq, vocab] */
    int64_t logits_stride;     /* predict only: elements between two positions */
} RtFunction;

/* A kernel or product that --trace and messages can name. */
typedef struct {
    const char *name;  /* "h.attn.q" */
    const char *where; /* "gpt2.mdl:24:9" */
    const char *kind;  /* "product", "attend", "fused", "update" ... */
    double flops;      /* of one call */
    double bytes;      /* read and written by one call, at least */
} RtKernel;

typedef struct {
    const char *name; /* of the model */
    const char *source;
    const RtTensor *tensors;
    int ntensors;
    const RtKernel *kernels;
    int nkernels;
    int64_t arena_bytes;   /* planned; the trainer allocates exactly this */
    int64_t state_bytes;   /* of these: tensors that outlive a step */
    double flops_per_step; /* of the model: 6 N per token and attention; recomputation not counted */
    int64_t tokens_per_step;
    int64_t vocab; /* tokens in the data must be below it */
    RtSchedule schedule;
    int64_t seed;
    const char *precision; /* "fp32", "bf16", "fp16" */
    bool is_causal_lm;     /* labels = next(tokens): --sample makes sense */
    RtFunction step, eval, predict;
    void (*create)(Rt *rt); /* makes the products, once; may be NULL */
    const char *plan;       /* plan.json as text */
} RtProgram;

/* The whole trainer: options, data, loop, checkpoints.  Returns the exit status. */
int rt_main(int argc, char **argv, const RtProgram *program);

/* --- Products: C = A B, or C += A B ------------------------------------------------------
 *
 * A is [M, K] and B is [K, N] as `batch` matrices each; rows and columns may have any stride of
 * which one is 1 (so a transposed operand is one whose row stride is 1).  Sums in f32.
 * The description is made once (rt_product_create, in program->create) and run often. */
typedef struct {
    int64_t m, n, k, batch;
    struct {
        RtType type;
        int64_t row, column, batch; /* strides, in elements; batch 0: the same matrix for all */
    } a, b, c;
    bool accumulate; /* C += A B instead of C = A B */
} RtProductShape;

/* Registers the product under `id` (0, 1, ... below nproducts, chosen by mpc).  Ends the trainer
 * with a clear message where the library cannot make it. */
void rt_product_create(Rt *rt, int id, RtProductShape shape);
void rt_product(Rt *rt, int id, const void *a, const void *b, void *c);

/* --- Tracing: bracket a kernel.  Costs a branch when nobody traces. ----------------------- */
extern bool rt_tracing;
void rt_trace_begin(Rt *rt, int kernel);
void rt_trace_end(Rt *rt, int kernel);

#define RT_RUN(rt, kernel, call)                                                                                       \
    do {                                                                                                               \
        if (rt_tracing)                                                                                                \
            rt_trace_begin((rt), (kernel));                                                                            \
        call;                                                                                                          \
        if (rt_tracing)                                                                                                \
            rt_trace_end((rt), (kernel));                                                                              \
    } while (0)

#endif
