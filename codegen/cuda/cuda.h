/* cuda.h -- the CUDA back end: the kernels of a program as one text of CUDA C++, and their launches.
 *
 * Sizes and strides are constants of the text, as in C.  One call of the IR is one or several launches, in order on one
 * stream, all with the same arguments: pointers to the operands and results in order, then scratch if needed.
 */
#ifndef MPC_CUDA_H
#define MPC_CUDA_H

#include "codegen.h"
#include "target.h"

typedef struct {
    const char *name;
    int64_t blocks;
    int threads;
    int64_t shared;       /* bytes of dynamic shared memory */
    int64_t shared_small; /* the same on GPUs with 99 KiB per block; 0: the same */
    int64_t bytes;        /* of global memory that it reads or writes, each once; at most, where indices choose them */
} CudaLaunch;

typedef struct {
    int count, room;
    CudaLaunch *at;
    CudaLaunch hopper; /* of attention, in place of the others on a GPU of sm_90a: of tensor maps of q, k and v, and of
                          y and lse; without a name there is none */
} CudaLaunches;

void add_launch(CudaLaunches *launches, CudaLaunch launch, Module *m);
bool same_launches(const CudaLaunches *a,
                   const CudaLaunches *b); /* except for names: the code may not depend on the number of blocks */

extern const Target cuda_target;

/* Bytes of scratch of such a call, from types only. */
int64_t cuda_scratch_bytes(Module *m, const Op *op);

/* Of one tensor's message: codegen/host/message.c. */
void nccl_packing(Module *m, const Op *op, Packing side[2]);

/* Bytes of shared memory that a block may have for a row, besides declared arrays: sm_86, sm_89 and sm_120 have 99 KiB.
 */
enum { CUDA_KEPT_ROW = 99 * 1024 - 512 };

/* Attention: the largest head that the tiles of the runtime's kernels support. */
enum { CUDA_LARGEST_HEAD = 256 };

/* All kernels of a program, each text once. */
typedef struct CudaProgram CudaProgram;
CudaProgram *emit_cuda_program(Module *m); /* the module has been through the memory pass; NULL after an error */
const char *cuda_program_text(const CudaProgram *program);
const ShardOffsets *cuda_program_offsets(const CudaProgram *program); /* used by the text */

/* The launches of one op, or of a group of small ones.  Arguments are those of each op in turn. */
typedef struct {
    const CudaLaunches *launches;
    int count;
    const Op *const *op;
    const Product *product; /* of the only op, whose arguments are then product_operands(); NULL: the whole op */
    bool is_in_product;     /* the next op is a product that computes it, or runs it first */
} CudaCall;

/* The launches of an op: NULL if it is not a kernel, or if it belongs to the group of an earlier op. */
const CudaCall *cuda_call(const CudaProgram *program, const Op *op);

/* The same for product `number`, as numbered by plan_products, of a product kernel: the product if cuBLASLt does not
 * support it, or if empty rows are left out of it (then counts are one more argument), else its bias and activation if
 * cuBLASLt may not fuse them; NULL if there is none. */
const CudaCall *cuda_product_call(const CudaProgram *program, const Op *op, int number);

/* May the product round its operands itself?  Their blocks are those of runtime/cuda/encode.cuh, and addresses fit. */
bool cuda_rounds_operands(Module *m, const Op *op, const Product *p);

/* Is it attention, or its gradient, that others may compute than the general kernels: cuDNN, or that for Hopper? */
bool is_cuda_attention(Module *m, const Op *op);

/* The fields of its RtAttentionShape; NULL if it is not. */
const char *cuda_attention_text(Module *m, const Op *op, const CudaLaunches *launches);

/* Each kernel once: origin and launches.  NULL after the last. */
typedef struct {
    const char *path, *where; /* of the first call in the program */
    const CudaLaunches *launches;
    int64_t least; /* bytes of its operands and results: what a single launch without scratch would move */
} CudaKernel;
const CudaKernel *cuda_kernel(const CudaProgram *program, int number);

#endif
