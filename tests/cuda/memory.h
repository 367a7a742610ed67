/* memory.h -- for tests of kernels: operands in the emulator's memory, as one rank has them. */
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

/* An operand's elements, padding too, may be touched. */
void allow_operand(const Module *m, const Operands *o, int operand, bool is_written);

/* The numbers that an element of this dtype can be. */
double rounded(double x, DType dtype);

/* What the rank has of a tensor, into memory.  Padding stays what it is, but masks are false there, since
 * passes/layout/padding.c makes them by position. */
void put_part(const Module *m, const Operands *o, int operand, const Tensor *tensor, int rank);

/* What the rank has computed, into the tensor: pending sums are added, pending maxima taken.  False if an element was
 * never written. */
bool take_part(const Module *m, const Operands *o, int operand, Tensor *tensor, int rank);

#endif
