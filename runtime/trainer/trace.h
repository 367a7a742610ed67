/* trace.h -- kernel times of a few steps, as a Chrome trace. */
#ifndef MPC_RUNTIME_TRACE_H
#define MPC_RUNTIME_TRACE_H

#include "state.h"

/* In place of a kernel of rt_trace_begin: a whole step; the present action of a pipeline. */
enum { RT_TRACED_STEP = -1, RT_TRACED_ACTION = -2 };

char *rt_trace_path(const char *path, int rank); /* rank 0: trace.json, rank 3: trace.rank3.json */

/* Records `steps` steps, from call `first` of rt_trace_step on; `path` NULL: not this rank.  All ranks call it: they
 * compare their clocks if any of them is traced. */
void rt_trace_open(Rt *rt, const char *path, int64_t first, int64_t steps);

/* Called before a step; `step`: its number in the trace.  Writes the file after the last step. */
void rt_trace_step(Rt *rt, int64_t step);

/* Adds an event of the computation or (`background`) of the collectives, between two marks.  `kernel` as for
 * rt_trace_begin; collectives follow the program's kernels. */
void rt_trace_span(Rt *rt, int kernel, bool background, double begin, double end);

/* What follows is for an action ('F', 'B', 'W') of a stage, or its messages; micro -1: for none. */
void rt_trace_action(Rt *rt, int stage, char action, int64_t micro);

/* A message that starts; arguments as for rt_send_start.  The marks of its begin and end are to be written to the
 * result, by any thread, before rt_trace_message_wait records the time that the computation waited for it. */
double *rt_trace_message(Rt *rt, int id, int64_t number, int other, bool sends);
void rt_trace_message_wait(Rt *rt, int id, int64_t number, double begin, double end);

void rt_trace_close(Rt *rt); /* writes the events, unless already written */

#endif
