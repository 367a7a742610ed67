/* cuda_group.h -- small kernels that one launch does at once: the update of all parameters, their casts, their zeros,
 * their sums of squares.
 *
 * A model has dozens of parameters, most of them smaller than what one multiprocessor does in a microsecond; a launch
 * takes longer.  Calls of element-wise kernels that follow each other, or of kernels that add up all of a tensor, and
 * of which none writes what another reads or writes, become one kernel: each has a range of its blocks.  The memory
 * pass keeps the scratch of such sums apart (cuda_scratch_stays).  Who adds what stays as it is in a launch of its own.
 */
#ifndef MPC_CUDA_GROUP_H
#define MPC_CUDA_GROUP_H

#include "cuda.h"

enum { MAX_GROUP = 64 };

/* How many calls from `first` on are one launch, and which: at least one. */
int find_cuda_group(Module *m, const Op *first, const Op *group[MAX_GROUP]);

const char *emit_cuda_group(Module *m, int count, const Op *const group[], const char *name, bool anonymous,
                            CudaLaunches *launches, FILE *out); /* returns the comment above it */

#endif
