/* cuda_sums.h -- sums that cuBLASLt can compute with a product: see cuda_sums.c. */
#ifndef MPC_CUDA_SUMS_H
#define MPC_CUDA_SUMS_H

#include "codegen.h"

/* Of one operand of a product: the sums of its first matrix, the elements between those of two matrices, and whether
 * their kernel has them in reverse order. */
typedef struct {
    RtSums of;
    const Value *first;
    int64_t between;
    bool reverse;
} ProductSums;

/* Of the only product of a call: the call just before it, of a kernel that sums its operand; NULL: none, or not as
 * cuBLASLt does it. */
const Op *sums_before(Module *m, const Op *call, const Product *product, ProductSums *sums);

/* Is it such a call?  Then the product runs it, if cuBLASLt does not compute it. */
bool is_run_by_product(Module *m, const Op *sums);

#endif
