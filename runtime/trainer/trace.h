/* trace.h -- the kernels of a few steps with their times, as a Chrome trace. */
#ifndef MPC_RUNTIME_TRACE_H
#define MPC_RUNTIME_TRACE_H

#include "state.h"

char *rt_trace_path(const char *path, int rank); /* rank 0 writes `path`, rank 3 of trace.json trace.rank3.json */

/* Records `steps` steps, from `first` on (counted as rt_trace_step is called). */
void rt_trace_open(Rt *rt, const char *path, int64_t first, int64_t steps);

/* Before a step; and with what it is called in the trace.  Writes the file once the last one is over. */
void rt_trace_step(Rt *rt, int64_t step);

/* What a thread did (0: the computation, 1: that of collectives) between two marks.  `kernel` as rt_trace_begin takes
 * it; the collectives follow the program's kernels. */
void rt_trace_span(Rt *rt, int kernel, int thread, double begin, double end);

void rt_trace_close(Rt *rt); /* writes what there is, unless that is done */

#endif
