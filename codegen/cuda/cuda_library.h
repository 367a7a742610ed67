/* cuda_library.h -- LIBRARY ops in CUDA: calls of the kernels in runtime/cuda/. */
#ifndef MPC_CUDA_LIBRARY_H
#define MPC_CUDA_LIBRARY_H

#include "cuda.h"
#include "library/library.h"

const char *emit_cuda_library(Module *m, const Op *op, const char *name, ShardOffsets *offsets, CudaLaunches *launches,
                              FILE *out);
int64_t cuda_library_scratch(Module *m, const Op *op);

/* cuda_attend.c */
void write_cuda_attend(Operands *o, const char *name, CudaLaunches *launches, FILE *out);
int64_t cuda_attend_scratch(Module *m, const Op *op);

/* Bytes of the operands and results from `first` to before `end`. */
int64_t library_bytes(const Operands *o, int first, int end);

/* One launch: the head of a function of the op's operands, with `body`, a call of the runtime's kernel. */
void write_cuda_library(const Operands *o, CudaLaunch launch, const char *body, CudaLaunches *launches, FILE *out);

/* The same with the op's own call of the runtime's function, to whose name `variant` is appended. */
void write_variant(Operands *o, const char *variant, CudaLaunch launch, CudaLaunches *launches, FILE *out);

/* cuda_experts.c */
void write_cuda_top_k(Operands *o, const char *name, CudaLaunches *launches, FILE *out);
void write_cuda_place(Operands *o, const char *name, CudaLaunches *launches, FILE *out);
void write_cuda_route(Operands *o, const char *name, CudaLaunches *launches, FILE *out);
void write_cuda_collect(Operands *o, const char *name, CudaLaunches *launches, FILE *out);

/* cuda_alignment.c: is the address of this operand or result of an op a multiple of so many bytes, in all calls? */
bool is_address_aligned(const Module *m, const Op *reader, const Value *value, int64_t bytes);

/* The widest pack, in elements, to which all rows of these operands are aligned. */
int library_width(const Operands *o, int first, int end, int widest);

/* cuda_product.c */
const char *emit_cuda_product(Module *m, const Product *p, const Op *call, const char *name, CudaLaunches *launches,
                              FILE *out);

/* cuda_counted.c: is it one that leaves empty rows out?  The functions have one more argument, an array for counts. */
bool is_cuda_counted(Module *m, const Product *p, const Op *call);
const char *emit_cuda_counted(Module *m, const Product *p, const Op *call, const char *name, CudaLaunches *launches,
                              FILE *out);

#endif
