/* ranks.h -- for tests of kernels: each rank's part of a tensor. */
#ifndef MPC_TESTS_RANKS_H
#define MPC_TESTS_RANKS_H

#include "ir/ir.h"
#include "runtime/types.h"

#include <stdio.h>

int rank_count(const Module *m);

/* Element i of what the rank has along a dim is element rt_position(part, i) of the whole, or padding. */
RtPart part_on_rank(const Module *m, const Dim *dim, int rank);

/* Of a pending sum, the first rank of its axes has the value, the others zeros. */
bool has_pending(const Module *m, const Type *type, int rank);

/* Does a lower rank hold the same part? */
bool holds_copy(const Module *m, const Type *type, int rank);

/* Writes a function for the text of kernels, emulated_rank(int rank), that sets what tells them their part. */
void write_ranks(Module *m, const char *text, FILE *out);

#endif
