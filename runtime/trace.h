/* trace.h -- the kernels of a few steps with their times, as a Chrome trace. */
#ifndef MPC_RUNTIME_TRACE_H
#define MPC_RUNTIME_TRACE_H

#include "state.h"

/* Records `steps` steps, from `first` on (counted as rt_trace_step is called). */
void rt_trace_open(Rt *rt, const char *path, int64_t first, int64_t steps);

/* Before a step; and with what it is called in the trace.  Writes the file once the last one is over. */
void rt_trace_step(Rt *rt, int64_t step);

void rt_trace_close(Rt *rt); /* writes what there is, unless that is done */

#endif
