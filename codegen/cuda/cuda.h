/* cuda.h -- the CUDA back end: kernels of a program as one text of CUDA C++, and how each is launched.
 *
 * Sizes and strides are constants of the text, as in C.  One call of the IR takes one or several launches, one behind
 * the other on one stream, all with the same arguments: pointers to the operands and results in order, then scratch
 * where there is any.
 */
#ifndef MPC_CUDA_H
#define MPC_CUDA_H

#include "codegen.h"

typedef struct {
    const char *name;
    int64_t blocks;
    int threads;
    int64_t shared;       /* bytes of dynamic shared memory */
    int64_t shared_small; /* the same on GPUs that have but 99 KiB for a block; 0: as much */
} CudaLaunch;

typedef struct {
    int count, room;
    CudaLaunch *at;
} CudaLaunches;

void add_launch(CudaLaunches *launches, CudaLaunch launch, Module *m);
bool same_launches(const CudaLaunches *a,
                   const CudaLaunches *b); /* but for names: the code need not say how many blocks */

/* Is it work for a kernel of ours, and not for the library of products? */
bool is_cuda_kernel(Module *m, const Op *op);

/* For Module.takes: kernels_take, and what several launches of one kernel want. */
bool cuda_takes(Module *m, const Op *op, Wanted wanted[]);

/* Bytes of scratch of such a call, from types alone; for Module.scratch_bytes. */
int64_t cuda_scratch_bytes(Module *m, const Op *op);

/* Of attention: what tiles of heads fit into, and the runtime's kernels are written for. */
enum { CUDA_LARGEST_HEAD = 256 };

/* For Module.keeps_before: cuBLASLt writes the operand of gelu beside its result, and of relu's only which were
 * positive. */
enum { CUDA_KEEPS_BEFORE = IS_GELU_TANH };

/* For how many ops behind it: those that may share its launch.  For Module.scratch_stays. */
int cuda_scratch_stays(Module *m, const Op *op);

/* All kernels of a program, each text once. */
typedef struct CudaProgram CudaProgram;
CudaProgram *emit_cuda_program(Module *m); /* the module has been through the memory pass; NULL after an error */
const char *cuda_program_text(const CudaProgram *program);
const ShardOffsets *cuda_program_offsets(const CudaProgram *program); /* that the text names */

/* What one run of launches does: one op, or a group of small ones.  Arguments are those of each op in turn. */
typedef struct {
    const CudaLaunches *launches;
    int count;
    const Op *const *op;
    const Product *product; /* of the only op, whose arguments are then product_operands(); NULL: all it does */
} CudaCall;

/* The launches that stand in the place of an op: NULL if it is no kernel, or if an earlier op does it along. */
const CudaCall *cuda_call(const CudaProgram *program, const Op *op);

/* The same for product `number`, as plan_products numbers them, of a product kernel: the product where cuBLASLt does
 * not take it, else its bias and activation where cuBLASLt does not do these; NULL if it has none. */
const CudaCall *cuda_product_call(const CudaProgram *program, const Op *op, int number);

/* Every kernel once: where it comes from, and how it is launched.  NULL behind the last. */
typedef struct {
    const char *path, *where; /* of the first call in the program */
    const CudaLaunches *launches;
} CudaKernel;
const CudaKernel *cuda_kernel(const CudaProgram *program, int number);

#endif
