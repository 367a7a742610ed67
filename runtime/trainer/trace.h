/* trace.h -- kernel times of a few steps, as a Chrome trace. */
#ifndef MPC_RUNTIME_TRACE_H
#define MPC_RUNTIME_TRACE_H

#include "state.h"

char *rt_trace_path(const char *path, int rank); /* rank 0: trace.json, rank 3: trace.rank3.json */

/* Records `steps` steps, from call `first` of rt_trace_step on. */
void rt_trace_open(Rt *rt, const char *path, int64_t first, int64_t steps);

/* Called before a step; `step`: its number in the trace.  Writes the file after the last step. */
void rt_trace_step(Rt *rt, int64_t step);

/* Adds an event of a thread (0: computation, 1: collectives) between two marks.  `kernel` as for rt_trace_begin;
 * collectives follow the program's kernels. */
void rt_trace_span(Rt *rt, int kernel, int thread, double begin, double end);

void rt_trace_close(Rt *rt); /* writes the events, unless already written */

#endif
