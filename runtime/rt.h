/* rt.h -- the interface of the runtime: the only runtime header included by generated code.
 *
 * A trainer is a constant `RtProgram` (tables and three functions, written by mpc) and this library.  `rt_main` reads
 * the options, fills the arena, and calls the program's functions; they call rt_product for products, and include
 * runtime/kernels/ for other kernels that do not depend on the model.  All device memory is one arena with a layout
 * planned by the compiler.
 *
 * Letters: M, N, K the sizes of a product; B sequences in a micro-batch; S sequence length.
 * Sizes and strides count elements unless a name says bytes.  Times are seconds.
 */
#ifndef MPC_RT_H
#define MPC_RT_H

#include "types.h"

typedef uint16_t rt_bf16, rt_f16; /* as bits; arithmetic is f32 */
typedef uint8_t rt_bool;          /* 0 is false; padding may have any value: it is read, but not used */

enum { RT_MAX_AXES = 8, RT_MAX_SPLIT = 4 };

/* An axis of the mesh.  Ranks are numbered with the last axis fastest. */
typedef struct {
    const char *name;
    int size;
} RtAxis;

/* How a dim is split over ranks: along `count` axes, the outermost block first.  All blocks have the same size: of a
 * dim of `padded` elements each rank has padded / ranks; those at or beyond `size` are padding. zigzag: the first axis,
 * of n ranks, makes n times as many chunks, dealt forth and back, so that rank r holds chunks r, 2n-1-r, 2n+r, ... in
 * this order; the other axes split the chunks of a rank of the first. */
typedef struct {
    int count;
    int axis[RT_MAX_SPLIT]; /* numbers of RtProgram.axes */
    int zigzag;             /* chunks of each rank of the first axis, an even number; 0: one */
    int dealt;              /* along one axis of n: blocks of each rank, r, n + r, 2n + r, ...; 0: one */
    const int64_t *parts;   /* along one axis: each rank's elements, in memory for the most; NULL: as above */
    bool reversed;          /* with `parts`: the last rank has the first elements */
    int turn;               /* along one axis of n: rank r has the block of rank (r + turn) mod n */
} RtSplit;

/* A tensor that outlives a step: a parameter, or a part of the optimizer's state.
 *
 * `name` is its path with one '*' for each enclosing repeat: "h.*.attn.wq".  The first `copies` dims count those, the
 * outermost from `first_copy` on, with `skipped_copies` between two of them: a checkpoint holds one tensor for each
 * copy, named with the copy's number, with the remaining dims.  Padding is never written to a file: `size` is the
 * logical size of the whole tensor; `stride` gives the positions of this rank's elements in the arena.  A split over
 * the copies, or `stages`, gives some tensors to some ranks only. */
typedef struct {
    const char *name; /* "h.*.attn.wq" */
    const char *like; /* the same, of another tensor that begins with the same values; NULL: none */
    /* NULL for a parameter, else its kind of state, by the optimizer's name: "m", "v"; or a scalar's name. */
    const char *state;
    RtType type;
    int rank, copies;
    int64_t first_copy, skipped_copies;
    const char *dim[RT_MAX_RANK];
    int64_t size[RT_MAX_RANK], padded[RT_MAX_RANK], stride[RT_MAX_RANK];
    RtSplit split[RT_MAX_RANK];
    uint64_t stages; /* a set of coordinates on stage_axis: the ranks that hold it; 0: all */
    int stage_axis;
    int64_t offset;       /* bytes, in the arena */
    int64_t stored_bytes; /* bytes from offset that belong to it, padding included; zeroed at start */
    RtInit init;
} RtTensor;

typedef struct {
    int64_t size, padded; /* over all ranks; padding is 0 */
    RtSplit split;
} RtInputDim;

/* A tensor that the trainer fills before a step: [micro-batches, B, dims...], row-major, or this rank's part of these
 * dims; the rows of a batch count over all ranks.  Of a stream of tokens, with at most one dim, element (u, b, s) is
 * the token s + shift of sequence u * B + b.  Of records, each row is one: record u * B + b of the array of `of`, from
 * `shift` on along the last dim. */
typedef struct {
    const char *name;
    const char *of; /* the input whose data it gets: itself, or T of next(T) */
    RtType type;    /* RT_F32, RT_I32 or RT_BOOL */
    int64_t offset; /* bytes, in the arena */
    int shift;
    int64_t vocab; /* numbers of i32 must be below it; 0: not used as an index */
    bool may_ignore;
    int64_t ignored; /* if may_ignore: allowed, too */
    RtSplit batch;
    int rank; /* of a record */
    RtInputDim dim[RT_MAX_RANK];
} RtInput;

/* Scalars that the trainer writes into the arena before a step and reads after it.  Offsets in bytes; -1: not used by
 * the program. */
typedef struct {
    int64_t step;          /* in, i32: the number of the step, from 0 */
    int64_t lr;            /* in, f32: learning rate of this step */
    int64_t pending;       /* in, i32: 1 if the step before has left its update: see RtProgram.finish */
    int64_t position;      /* in, i32: that of which a prediction has the logits */
    int64_t key;           /* in, i32: dropout's key, a hash of (seed, step) */
    int64_t loss;          /* out, f32: mean over the whole batch; of an evaluation, this call's share of it */
    int64_t grad_norm;     /* out, f32: before clipping */
    int64_t loss_scale;    /* out, f32: fp16 only */
    int64_t skipped_steps; /* out, i32: so far; train.skip_spikes only */
} RtScalars;

/* A divisor of a mean that depends on the data: how many labels count. */
typedef struct {
    int64_t divisor; /* in, f32; -1 of a step, which finds it itself */
    int64_t count;   /* out, f32: of the sequences of this call */
} RtTotal;

/* What a step says of the experts at one place of the model: a number for each copy, f32. */
typedef struct {
    int64_t offset, copies;
} RtMeasure;

typedef enum { RT_CONSTANT_LR, RT_LINEAR, RT_COSINE, RT_WSD } RtScheduleKind;

typedef struct {
    RtScheduleKind kind;
    double lr, min_lr;
    int64_t warmup, steps, decay;
} RtSchedule;

typedef struct Rt Rt;

/* --- Kinds of ranks ---------------------------------------------------------------------------------
 *
 * Offsets are those of a frame that has room for what any rank holds.  Ranks of one kind, which are those of a stage of
 * a pipeline, leave out of it what they do not need: what is behind that lies further ahead. */
typedef struct {
    int64_t at, bytes;
} RtGap;

typedef struct {
    int axis;                /* the coordinate on it is the kind of a rank */
    const RtGap *const *gap; /* by kind: in order; the last one has no bytes */
} RtKinds;

int64_t rt_at(const Rt *rt, const RtKinds *kinds, int64_t offset); /* where this rank has it */

/* One function of the program: a whole training step, an evaluation, a prediction.  `run` is NULL if the model has no
 * such function. */
typedef struct {
    void (*run)(Rt *rt, char *arena);
    const RtInput *inputs;
    int ninputs;
    const RtKinds *kinds; /* of the arena while it runs; NULL: all ranks are alike */
    RtScalars scalars;
    int64_t micro, batch, seq; /* of its inputs, over all ranks: sequences a call = micro * batch */
    int64_t logits;            /* predict only: offset in bytes of f32 [batch, vocab] */
    const RtTensor *results;   /* outputs only: [sequences, dims...], of which a rank has this part */
    int nresults;
    const RtTotal *totals; /* of eval and step */
    int ntotals;
    const RtMeasure *loads, *dropped; /* step only: the most choices of an expert over the mean; the share beyond the
                                         capacity, of places that have one */
    int nloads, ndropped;
    const char *mixes; /* eval only: where the loss mixes the sequences of a call, "gpt2.mdl:24:9", so that it is not
                          their sum, but for a constant; NULL: it is */
    const char *auxiliary; /* eval only: where the loss takes the balance of experts; NULL: nowhere */
    int64_t choices;       /* predict only: the number of logits; there may be more tokens */
} RtFunction;

/* A kernel or product that --trace and messages can name. */
typedef struct {
    const char *name;  /* "h.attn.q" */
    const char *where; /* "gpt2.mdl:24:9" */
    const char *kind;  /* "product", "attend", "fused", "update" ... */
    double flops;      /* of one call */
    double bytes;      /* minimum of bytes read and written by one call */
} RtKernel;

/* One tensor of a collective, row-major in memory on both sides; the group has n ranks.
 *
 *   all_reduce      [outer, block] -> [outer, block]: the sum, or the maximum
 *   all_gather      [outer, block] -> [outer, n, block]
 *   reduce_scatter  [outer, n, block] -> [outer, block]
 *   send            [outer, block] -> [outer, block], from one rank to another
 *   rotate          [outer, block] -> [outer, block], from the rank `turn` behind, around the group
 *   all_to_all      gathers one dim and splits another; gathers_first: the gathered dim is the first of them:
 *                   [outer, block, middle, n, cut, inner] -> [outer, n, block, middle, cut, inner], or
 *                   [outer, n, cut, middle, block, inner] -> [outer, cut, middle, n, block, inner]
 *
 * If the split is zig-zag, n is a number of chunks (see RtSplit): block (or cut) is two chunks, at positions r and
 * 2n-1-r of 2n.  More chunks for each rank are that many times more rows (`outer`, or `middle`). */
typedef struct {
    int64_t outer, block, middle, cut, inner; /* elements; the last three of all_to_all only */
    const int64_t *copies; /* NULL, or of a stack: `outer` is that of one copy, and the ranks of stage i along ... */
    int along;             /* ... this axis have copies[i] of them */
    bool gathers_first;
    bool zigzag, zigzag_cut; /* of the dim that is gathered or reduced to a split; of the one that all_to_all splits */
} RtPiece;

typedef enum { RT_ALL_REDUCE, RT_ALL_GATHER, RT_REDUCE_SCATTER, RT_ALL_TO_ALL, RT_SEND, RT_ROTATE } RtCollectiveKind;

/* A collective; ops of one bucket are one collective, with a piece for each tensor.  Sums are in rank order and in
 * f32. */
typedef struct {
    RtCollectiveKind kind;
    RtType type;
    bool maximum;
    int naxes, axis[RT_MAX_AXES]; /* the group: ranks that differ on these axes only, the first axis slowest */
    uint64_t stages;              /* if not 0: of its only axis, the coordinates of those in the group */
    int turn;                     /* of a rotate */
    bool gaps;                /* on a processor zeros are not sent: of rows that are mostly empty; not of all_reduce */
    const char *name, *where; /* "h.attn", "gpt2.mdl:31:12" */
    const char *cause;        /* the pass that inserted it, and the reason: for reports */
    RtPiece *piece;
    int npieces;
} RtCollective;

/* --- Kernels of a GPU ------------------------------------------------------------------------- */

/* A function of the kernels' text, and its launch: a one-dimensional grid of blocks, with pointers as arguments. */
typedef struct {
    const char *name, *where; /* "kernel_h_ln_1"; "h.ln_1, gpt2.mdl:16:12" */
    int64_t blocks;
    int64_t shared, shared_small; /* bytes of dynamic shared memory; on a GPU with 99 KiB per block */
    int threads, operands;
    bool more; /* the next row belongs to the same call */
} RtKernelLaunch;

/* Attention, or its gradient: by the program's general kernels, or by cuDNN or the program's kernel for Hopper, if
 * there is one, its results are the same, and it is faster, which is tried when the trainer starts.  Head h of the
 * queries sees the keys of head h * key_heads / heads. */
typedef struct {
    int64_t batch, row, head; /* strides, in elements; row: of a query or a key; 1 along the features */
} RtHeads;

typedef struct {
    int64_t batch, queries, keys, heads, key_heads, feature;
    RtHeads q, k, v, y, dy, dq, dk, dv; /* the last four: of the gradients */
    RtType type;                        /* of all but the log-sum-exp: bf16 or f16 */
    bool causal;                        /* query i sees keys up to i */
    int64_t window;                     /* with `causal`: only so many of these, the last; 0: all */
    float scale;
    bool is_gradient;
    int kernels; /* the first launch of the general ones */
    RtKernelLaunch
        hopper; /* of tensor maps of q, k and v, and of y and the log-sum-exp; its name is NULL without one */
} RtAttentionShape;

/* A constant of that text, an RtPart: this rank's part of a split dim. */
typedef struct {
    const char *name;
    RtSplit split;
    int64_t padded;
} RtPartConstant;

typedef struct {
    const char *text; /* CUDA C++, compiled when the trainer starts */
    const RtKernelLaunch *launches;
    int nlaunches;
    const RtPartConstant *parts;
    int nparts;
    const RtAttentionShape *attentions;
    int nattentions;
} RtCode;

/* A file as a constant of the program, followed by a zero; searched in the include path. */
#define RT_EMBED(name, path)                                                                                           \
    extern const char name[];                                                                                          \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"" path "\"\n.byte 0\n.popsection")

typedef struct RtComm RtComm; /* message transport; NULL in a program of one rank */
extern const RtComm rt_mpi, rt_tcp;

typedef struct RtProbeKernels RtProbeKernels; /* kernels/library.h: what --probe times on a processor */

typedef struct {
    const char *name; /* of the model */
    const char *source;
    const RtAxis *axes; /* the mesh; none: one rank */
    int naxes;
    const RtComm *comm;
    const RtCollective *collectives;
    int ncollectives;
    const RtTensor *tensors;
    int ntensors;
    const RtKernel *kernels;
    int nkernels;
    const RtCode *code;  /* NULL: kernels are C, and the device is this processor */
    int64_t arena_bytes; /* planned; the trainer allocates exactly this, without what its kind of rank leaves out */
    int64_t state_bytes; /* of these, for tensors that outlive a step; likewise */
    int64_t far_begin;   /* offsets from here on are of tensors in another tier of memory, ... */
    int64_t far_bytes;   /* ... of so many bytes; 0: there are none */
    int ntransfers;
    const char *far_folder;  /* NULL: the current one */
    double flops_per_step;   /* of the model: 6 N per token and attention; recomputation not counted */
    int64_t tokens_per_step; /* of records: their number */
    bool takes_records;      /* each input from an array of its own; else all from one stream of tokens */
    int64_t vocab;           /* tokens in the data must be below it */
    RtSchedule schedule;
    int64_t seed;
    const char *precision; /* "fp32", "bf16", "fp16", "fp8" */
    const char *optimizer; /* of most parameters; NULL: none is known */
    bool is_causal_lm;     /* labels = next(tokens): --sample is supported */
    RtFunction step, eval, predict, outputs;
    RtFunction finish;           /* the update that a step leaves to the next one; without `run`: it leaves none */
    RtFunction begin;            /* reads what the step before a step would have; likewise */
    void (*create)(Rt *rt);      /* creates the products, once; may be NULL */
    const char *plan;            /* plan.json as text */
    const bool *needed;          /* of processor_features.h; NULL: none is known */
    const RtProbeKernels *probe; /* NULL: on a GPU */
} RtProgram;

/* The whole trainer: options, data, loop, checkpoints.  Returns the exit status. */
int rt_main(int argc, char **argv, const RtProgram *program);

/* --- Products: C = A B, C += A B, C = activation(A B + bias), C = A B + bias + to, or C = A B * slope(at) -----------
 *
 * A is [M, K] and B is [K, N] as `batch` matrices each; one of the strides of rows and columns is 1, the other is
 * arbitrary (a transposed operand has row stride 1).  Sums in f32.  A product is created once (rt_product_create, in
 * program->create) and run often. */
typedef enum { RT_NO_ACTIVATION, RT_RELU, RT_GELU_TANH, RT_GELU_TANH_SLOPE } RtActivation;

/* Products by expert: of M, N or K only the elements up to the last one that is not zero in A, in B, or in either are
 * computed; contiguous where that is looked up: A's rows, B's columns, A's columns or B's rows.  A GPU computes all. */
typedef enum { RT_NOT_COUNTED, RT_COUNTED_M, RT_COUNTED_N, RT_COUNTED_K } RtCounted;

/* With a product: of each of A's rows, or of each of B's columns, the sum. */
typedef enum { RT_NO_SUMS, RT_SUMS_A, RT_SUMS_B } RtSums;
typedef enum { RT_NO_SQUARES, RT_SQUARES_A, RT_SQUARES_B } RtSquares;
enum { RT_MOST_SUMS = 8 }; /* matrices of a batch with sums */

typedef struct {
    int64_t m, n, k, batch;
    struct {
        RtType type;
        int64_t row, column, batch; /* strides, in elements; batch 0: the same matrix for all */
    } a, b, c;
    int64_t block;     /* of A and B so many neighbours along k are numbers of e4m3 times one power of two; 0: they are
                          not */
    RtSquares squares; /* of that operand as many rows of A, or columns of B, share the power of two, too */
    bool unrounded;    /* where it is computed in 8 bits, A and B have not been rounded yet; on a GPU only */
    bool accumulate;   /* C += A B instead of C = A B; or A B is added to another matrix, see rt_product_added */
    RtCounted counted; /* without bias and activation */
    bool has_bias;     /* a contiguous row of n numbers of C's type is added to each row */
    RtActivation activation;
    bool keeps_before;    /* the operand of the activation is written too, with C's type and strides; on a GPU only */
    RtSums sums;          /* with no other epilogue; on a GPU only */
    int64_t between_sums; /* of two matrices of a batch, in elements */
    bool sums_reverse;    /* the launch `unfused` has the matrices of a batch in reverse order */
    int unfused;          /* on a GPU: the launch of a counted product, or of epilogue or sums if cuBLASLt has none */
} RtProductShape;

/* Registers the product under `id` (0, 1, ... below nproducts, chosen by mpc).  Ends the trainer with an error if the
 * library cannot create it. */
void rt_product_create(Rt *rt, int id, RtProductShape shape);
void rt_product(Rt *rt, int id, const void *a, const void *b, void *c);

/* With a bias, an activation or both; NULL for absent ones. */
void rt_product_with(Rt *rt, int id, const void *a, const void *b, const void *bias, void *before, void *c);

/* With a bias, or NULL, and `to` instead of what is in C, of C's type and strides; on a GPU only. */
void rt_product_added(Rt *rt, int id, const void *a, const void *b, const void *bias, const void *to, void *c);

/* With a slope, at elements of C's type and strides; on a GPU only. */
void rt_product_slope(Rt *rt, int id, const void *a, const void *b, const void *at, void *c);

/* With sums: those of a matrix contiguous, of C's type; `scratch` is for their launch, NULL if it needs none. */
void rt_product_sums(Rt *rt, int id, const void *a, const void *b, void *sums, void *scratch, void *c);

/* --- On a GPU ------------------------------------------------------------------------------------
 *
 * These only queue work on the compute stream, like rt_product.  A call runs the launches from its number on, up to the
 * first without `more`. */
#define RT_LAUNCH(rt, launch, ...) rt_launch((rt), (launch), (const void *const[]){ __VA_ARGS__ })
void rt_launch(Rt *rt, int launch, const void *const operands[]);

/* Is the product computed in 8 bits?  Then it rounds operands itself, and those that are rounded for it are not needed.
 */
bool rt_product_in_8(const Rt *rt, int id);
static inline const void *rt_either(const Rt *rt, int id, const void *unrounded, const void *rounded)
{
    return rt_product_in_8(rt, id) ? unrounded : rounded;
}

void rt_copy_bytes(Rt *rt, void *to, const void *from, int64_t bytes);
void rt_zero_bytes(Rt *rt, void *at, int64_t bytes);

/* `rows` rows of `row` bytes each, with pitches to_row and from_row in bytes. */
void rt_copy_rows(Rt *rt, void *to, int64_t to_row, const void *from, int64_t from_row, int64_t row, int64_t rows);

/* --- Attention, on a GPU ---------------------------------------------------------------------------
 *
 * Number `id` of the program's attentions, by whom is fastest.  Operands: q, k, v, y, log-sum-exp [batch,
 * heads, queries]; for the gradient also dy, dq, dk, dv, and memory of the size of the log-sum-exp. */
#define RT_ATTEND(rt, id, ...) rt_attention((rt), (id), (const void *const[]){ __VA_ARGS__ })
void rt_attention(Rt *rt, int id, const void *const operands[]);

/* --- Turns of a loop, on a GPU -------------------------------------------------------------------
 *
 * A recorded function has one graph for all turns of its loop over micro-batches, at the addresses of the first one;
 * the slices of later ones are copied over the first.  rt_turn is false for a turn that must not be queued, since its
 * graph is; after a turn that has been queued, rt_turn_over is called. */
typedef struct {
    void *first; /* of turn 0, which the others follow */
    int64_t bytes;
} RtSlice;

bool rt_turn(Rt *rt, int64_t turn, int64_t turns, int count, const RtSlice slices[]);
void rt_turn_over(Rt *rt);

/* --- The mesh: coordinates and communication ----------------------------------------
 *
 * in[i] and out[i] are the i-th tensor of collective `id`; they may be the same memory for all_reduce only.  Every rank
 * of a group calls the same collectives in the same order.  Started ones run in the background: in[] and out[] are not
 * touched until rt_collective_wait; rt_collective is both. */
int rt_coordinate(const Rt *rt, int axis); /* this rank's coordinate on the axis */

RtPart rt_part(const Rt *rt, RtSplit split, int64_t padded);

void rt_collective_start(Rt *rt, int id, const void *const in[], void *const out[]);
void rt_collective_wait(Rt *rt, int id);
void rt_collective(Rt *rt, int id, const void *const in[], void *const out[]);

/* A message of collective `id`, a send, between two ranks that differ on its axis only: one calls rt_send with the
 * coordinate of the other, which calls rt_receive with that of the first.  Started ones return a number, for
 * rt_message_wait; several of one collective may be under way. */
int64_t rt_send_start(Rt *rt, int id, int to, const void *data);
int64_t rt_receive_start(Rt *rt, int id, int from, void *data);
void rt_message_wait(Rt *rt, int id, int64_t number);
void rt_send(Rt *rt, int id, int to, const void *data);
void rt_receive(Rt *rt, int id, int from, void *data);
#define RT_IN(...) ((const void *const[]){ __VA_ARGS__ })
#define RT_OUT(...) ((void *const[]){ __VA_ARGS__ })

/* --- Other tiers of memory --------------------------------------------------------------------------
 *
 * Addresses in them are those of the arena, from RtProgram.far_begin on, and are not accessible: a fetch copies to the
 * device, an offload from it.  What is started runs in the background until rt_transfer_wait of its number, below
 * ntransfers. */
void *rt_far_address(const Rt *rt, int64_t offset); /* in the plan */
void rt_fetch_start(Rt *rt, int id, void *to, const void *from, int64_t bytes);
void rt_offload_start(Rt *rt, int id, void *to, const void *from, int64_t bytes);
void rt_transfer_wait(Rt *rt, int id);
void rt_fetch(Rt *rt, void *to, const void *from, int64_t bytes);
void rt_offload(Rt *rt, void *to, const void *from, int64_t bytes);

/* Before a step first changes what outlives it: copies that a checkpoint is written from are complete then. */
void rt_state_changes(Rt *rt);

/* --- Pipelines ------------------------------------------------------------------------------------
 *
 * The micro-batches of a step, in the order of a schedule that mpc has proved free of deadlock.  A rank has one stage
 * in each chunk.  What outlives an action lies in rings of slots: micro-batch i is in slot i mod the number of slots of
 * the rank. */
typedef enum { RT_FORWARD, RT_BACKWARD, RT_WEIGHTS, RT_ACTIONS } RtAction;

/* What a rank does: an action; to send or receive an activation, or its gradient (BACK); to reduce the gradients of a
 * stage that has ended. */
enum { RT_SENDS = RT_ACTIONS, RT_SENDS_BACK, RT_RECEIVES, RT_RECEIVES_BACK, RT_REDUCES };
#define RT_EVENT_LETTERS "FBWsSrR+" /* by kind */

/* In text its letter, the stage, a dot, the micro-batch, a space: "F3.12 ". */
typedef struct {
    int kind; /* an RtAction, or one of the others */
    int stage, micro;
} RtEvent;

typedef struct {
    int64_t offset, bytes; /* of the first slot, in the arena; of one slot */
    const int *slots;      /* by rank */
} RtRing;

typedef struct {
    int id, leave, enter; /* the collective; the rings that it is sent from and arrives in */
} RtStageMessage;

typedef struct {
    const RtStageMessage *message;
    int count;
} RtStageMessages;

/* An input with a slice for each micro-batch, which follow each other. */
typedef struct {
    int64_t offset, bytes; /* of the first slice, in the arena; of one slice */
} RtFed;

typedef struct {
    int axis, ranks, chunks, micros; /* ranks: along the axis */
    const int *const *stage;         /* by rank and chunk */
    const RtRing *ring;
    const RtStageMessages *message[2]; /* activations, gradients; by the stage that sends them */
    void (*const *action[RT_ACTIONS])(Rt *rt, char *arena, int64_t micro); /* by chunk; of weights, each may be NULL */
    void (*const *reduce)(Rt *rt, char *arena); /* by chunk: starts the reductions of its gradients; NULL: none */
    const char *const *events;                  /* by rank, in its order */
    bool records;                               /* may a GPU record actions, one for all micro-batches? */
    int nfed;                                   /* inputs of which they then read the first slice */
    const RtFed *fed;
} RtPipeline;

void rt_pipeline(Rt *rt, const RtPipeline *pipeline, char *arena);
const char *rt_read_event(const char *events, RtEvent *event); /* the first; returns those behind it, NULL: none */
void *rt_slot(Rt *rt, const RtPipeline *pipeline, char *arena, int ring, int64_t micro);
int64_t rt_slice(const Rt *rt, int64_t micro); /* the slice of inputs that an action reads, on a GPU */

/* --- Tracing: bracket a kernel.  Costs a branch if tracing is off. ------------------------ */
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

/* Sets the present iteration of the loop over the dim; -1: end of the loop. */
void rt_trace_iteration(Rt *rt, const char *dim, int64_t iteration);

#define RT_ITERATION(rt, dim, iteration)                                                                               \
    do {                                                                                                               \
        if (rt_tracing)                                                                                                \
            rt_trace_iteration((rt), (dim), (iteration));                                                              \
    } while (0)

#endif
