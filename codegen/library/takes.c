/* takes.c -- the memory orders of operands and results that this back end supports; passes/memory/order.c copies
 * others. */
#include "library.h"

bool kernels_accept(Module *m, const Op *op, RequiredLayout wanted[])
{
    const Func *kernel = called_by(m, op);
    if (info(op)->family == LIBRARY)
        return library_accepts(m, op, wanted);
    if (kernel && is_product_kernel(kernel))
        return products_accept(m, kernel, op, wanted);
    return !row_kernel_of(m, op) || row_kernel_accepts(m, kernel, op, wanted);
}
