/* cuda.c -- the CUDA text of a program: which ops are kernels of ours, and each text once. */
#include "cuda.h"

#include "cuda_row.h"
#include "cuda_library.h"


static const Func *kernel_of(const Module *m, const Op *op)
{
    const Func *kernel = op->kind == OP_call ? find_func(m, op->attrs.callee) : NULL;
    return kernel && kernel->role == KERNEL ? kernel : NULL;
}

bool is_cuda_kernel(Module *m, const Op *op)
{
    const Func *kernel = kernel_of(m, op);
    return info(op)->family == LIBRARY || (kernel && !is_product_kernel(kernel));
}

bool emit_cuda_kernel(Module *m, const Op *op, const char *name, CudaLaunches *launches, FILE *out)
{
    int errors = m->diags->errors;
    launches->count = 0;
    if (kernel_of(m, op))
        emit_cuda_row(m, kernel_of(m, op), op, name, launches, out);
    else
        emit_cuda_library(m, op, name, launches, out);
    return m->diags->errors == errors;
}

int64_t cuda_scratch_bytes(Module *m, const Op *op)
{
    if (info(op)->family == LIBRARY)
        return cuda_library_scratch(m, op);
    const Func *kernel = kernel_of(m, op);
    return kernel && !is_product_kernel(kernel) ? cuda_row_scratch(m, kernel) : 0;
}
