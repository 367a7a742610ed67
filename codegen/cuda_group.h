/* cuda_group.h -- small kernels that one launch does at once: the update of all parameters, their casts, their zeros.
 *
 * A model has dozens of parameters, most of them smaller than what one multiprocessor does in a microsecond; a launch
 * takes longer.  Calls of element-wise kernels that follow each other, and of which none writes what another reads or
 * writes, become one kernel: each has a range of its blocks.
 */
#ifndef MPC_CUDA_GROUP_H
#define MPC_CUDA_GROUP_H

#include "cuda.h"

enum { MAX_GROUP = 64 };

/* How many calls from `first` on are one launch, and which: at least one. */
int find_cuda_group(Module *m, const Op *first, const Op *group[MAX_GROUP]);

void emit_cuda_group(Module *m, int count, const Op *const group[], const char *name, CudaLaunches *launches,
                     FILE *out);

#endif
