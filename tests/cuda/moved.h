/* moved.h -- for tests of kernels: the bytes that a launch has moved. */
#ifndef MPC_TESTS_MOVED_H
#define MPC_TESTS_MOVED_H

#include "codegen/cuda/cuda.h"

/* Has the last launch moved as many bytes as the compiler says?  Fewer where indices or a condition choose what is
 * read, or where members of a group read one number.  False after a line on stdout. */
bool moves_what_is_said(const Module *m, const CudaLaunch *launch, const CudaCall *call);

#endif
