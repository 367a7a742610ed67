/* memory.h -- for tests of kernels: one rank's operands in the emulator's memory. */
#ifndef MPC_TESTS_MEMORY_H
#define MPC_TESTS_MEMORY_H

#include "ir/interp/interp.h"

enum { MAX_OPERANDS_HERE = 512, GAP = 256 };

typedef struct {
    int count;
    const Value *value[MAX_OPERANDS_HERE];
    int64_t at[MAX_OPERANDS_HERE]; /* in `memory` */
    char *memory;
    int64_t bytes;
} Operands;

/* ShardOffsets for all operands: those that overlap keep their distance, the others are put close together. */
void lay_out(const Module *m, Operands *o);

/* Permits access to an operand's elements, including padding. */
void allow_operand(const Module *m, const Operands *o, int operand, bool is_written);

/* The nearest number of the dtype. */
double rounded(double x, DType dtype);

/* Copies the rank's part of a tensor to memory.  Padding is unchanged, except that masks are false there, since
 * passes/layout/padding.c makes them by position. */
void put_rank_part(const Module *m, const Operands *o, int operand, const Tensor *tensor, int rank);

/* Copies the rank's results to the tensor: pending sums are added, pending maxima taken.  False if an element was never
 * written. */
bool take_part(const Module *m, const Operands *o, int operand, Tensor *tensor, int rank);

#endif
