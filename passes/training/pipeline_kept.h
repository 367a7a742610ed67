/* pipeline_kept.h -- an upper bound over ranks of how often the residuals of a function are kept: for each of its
 * copies and, in a pipeline, for each micro-batch in flight or abreast. */
#ifndef MPC_PIPELINE_KEPT_H
#define MPC_PIPELINE_KEPT_H

#include "schedule/parts.h"

typedef struct {
    Module *compiled;
    const PipelineSchedule *schedule; /* NULL: micro-batches run one after the other */
    const MicroParts *parts;
    int64_t abreast; /* micro-batches that a schedule moves as one */
} ResidualCopies;

ResidualCopies kept_in(Arena *arena, Module *compiled); /* a program after the pass `pipeline` */

/* On the rank that keeps most, of what is in no loop; of the function of that name, for all copies of the rank.  0: no
 * loop in stages calls it. */
double times_kept_once(const ResidualCopies *kept);
double times_kept_in_flight(const ResidualCopies *kept, const char *name);

#endif
