/* row.h -- row kernels in C: their loops, and the text of these. */
#ifndef MPC_ROW_H
#define MPC_ROW_H

#include "kernel/tree.h"

RowKernel *plan_for_c(Module *m, const Func *kernel, const Op *call, bool anonymous); /* row.c */
void plan_kept(RowKernel *k);                                                         /* row_kept.c */

/* row_steps.c: the part of the plan that only C has, and a region's steps. */
void plan_columns(RowKernel *k); /* their blocks, and scratch */
void add_region(Steps *to, int region);
DimSet summed_into(const RowKernel *k, const Sink *column); /* the dims of the array of its sums; 0: one sum */
int64_t sum_count(const RowKernel *k, const Sink *column);

/* row_print.c: their text. */
void print_steps(RowKernel *k, const Region *region, const Step *steps, FILE *out);

#endif
