/* cuda_epilogue.h -- unfused epilogues: bias and activation of a product as a kernel of their own. */
#ifndef MPC_CUDA_EPILOGUE_H
#define MPC_CUDA_EPILOGUE_H

#include "codegen.h"

/* A call of a new row kernel, which reads a product where that lies (where `before` is, or else C), then the bias, and
 * writes `before`, then C: those that there are.  It is in no function; the list has this one op. */
const Op *const *unfused_epilogue(Module *m, const Op *call, const Product *product);

#endif
