/* cuda_group.h -- small kernels combined in one launch: updates of all parameters, their casts, zeros, sums of squares.
 *
 * A model has dozens of parameters, most of them less than a microsecond of work for one multiprocessor; a launch takes
 * longer.  Consecutive calls of element-wise kernels, or of kernels that sum a whole tensor, become one kernel if none
 * writes what another reads or writes: each has a range of its blocks.  The memory pass keeps the scratch of such sums
 * disjoint (cuda_scratch_stays).  The order of summation is the same as in separate launches.
 */
#ifndef MPC_CUDA_GROUP_H
#define MPC_CUDA_GROUP_H

#include "cuda.h"

enum { MAX_GROUP = 64 };

/* Is it a view, for which nothing is queued? */
bool is_view_only(const Op *op);

/* The number of later ops that may share its launch. */
int cuda_scratch_stays(Module *m, const Op *op);

/* The calls from `first` on that form one launch; returns their number, at least one. */
int find_cuda_group(Module *m, const Op *first, const Op *group[MAX_GROUP]);

const char *emit_cuda_group(Module *m, int count, const Op *const group[], const char *name, bool anonymous,
                            ShardOffsets *offsets, CudaLaunches *launches,
                            FILE *out); /* returns the comment above it */

#endif
