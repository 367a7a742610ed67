/* cuda_rest.h -- unfused epilogues: bias and activation of a product as a kernel of their own. */
#ifndef MPC_CUDA_REST_H
#define MPC_CUDA_REST_H

#include "codegen.h"

/* A call of a new row kernel, which reads a product where that lies (where `before` is, or else C), then the bias, and
 * writes `before`, then C: those that there are.  It is in no function; the list has this one op. */
const Op *const *rest_of_product(Module *m, const Op *call, const Product *product);

#endif
