/* cuda_epilogue.h -- unfused epilogues: bias and activation of a product as a separate kernel. */
#ifndef MPC_CUDA_EPILOGUE_H
#define MPC_CUDA_EPILOGUE_H

#include "codegen.h"

/* A call of a new row kernel, which reads a product (stored in `before`, or else C) and the bias, and writes `before`
 * and C, as far as present.  The call is in no function; the list has this one op. */
const Op *const *unfused_epilogue(Module *m, const Op *call, const Product *product);

#endif
