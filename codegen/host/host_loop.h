/* host_loop.h -- a loop being written, shared by host_loop.c and host_pipeline.c. */
#ifndef MPC_HOST_LOOP_H
#define MPC_HOST_LOOP_H

#include "host_parts.h"

typedef struct {
    FuncText *t;
    const Op *op;
    const Func *callee;
    const HostFunc *c;
    int64_t iterations;       /* on the rank that has most */
    const char *copies;       /* the variable with those of this rank, if ranks differ; else NULL */
    Name dim;                 /* NULL: a call */
    const char *index;        /* the loop's variable */
    int64_t buffer;           /* offset of the next iteration buffer */
    Text before, first, last; /* before the loop; at the beginning and end of an iteration */
    Text after;               /* the loop */
} LoopText;

const char *slice_of(LoopText *l,
                     const Value *value); /* the present iteration's; of a value without the loop's dim, all */
void copy_initial(LoopText *l, const Value *from, const Value *to); /* before the loop, of a value carried in place */
const char *turn_condition(LoopText *l);                            /* host_turn.c */
const char *fed_slices(LoopText *l, int *count);                    /* the same, of the actions of a pipeline */
void write_scheduled(LoopText *l);                                  /* its functions and tables, and before the loop */

#endif
