/* deal.h -- deals the tensors of a checkpoint to its files, and to the ranks that write them. */
#ifndef MPC_RUNTIME_DEAL_H
#define MPC_RUNTIME_DEAL_H

#include "tensors.h"

typedef struct {
    int first, count; /* its tensors, of the views */
} RtShare;

/* Deals whole tensors to about so many files of about one size; sorts the views so that those of a file are
 * neighbours, in the order of the program.  Tensors of different stages are in different files, as far as possible, so
 * that ranks write files of their own.  Where several ranks have the same part, the owner is another one in each file,
 * so that all of them write.  All ranks call it. */
RtShare *rt_deal(Rt *rt, RtView *views, int count, int files, int *dealt);

#endif
