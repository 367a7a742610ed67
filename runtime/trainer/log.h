/* log.h -- the record of a step: a line of JSON in --log, a line on the terminal. */
#ifndef MPC_RUNTIME_LOG_H
#define MPC_RUNTIME_LOG_H

#include "mesh/comm.h"

/* Of a step that is done.  NAN: the program or this step has no such figure. */
typedef struct {
    int64_t step, steps; /* done, this one included; in all */
    double loss, grad_norm, eval_loss, lr, loss_scale;
    double seconds, left_s; /* of this step; until the last one */
    double tokens_per_s;
    double mfu; /* model flops utilisation: the model's flops/s over those of the best product */
    int64_t bytes;
    int ranks;
    RtTraffic traffic; /* of this step and rank */
} RtStepReport;

typedef struct {
    const char *path; /* NULL: no --log */
    int file;
    char *failure; /* NULL: all is well */
} RtLog;

/* Opens --log and writes to it once, so that a full disk is found now.  The lines of steps after `step`, which the run
 * is about to do again, are removed.  Ends the trainer where that would lose what is no later line of a log: all of a
 * file for a fresh run (step 0), unless it may `overwrite`. */
RtLog rt_log_open(const char *path, int64_t step, bool overwrite);

/* A line that cannot be written ends the log: `failure` says why, so that the run can be saved before it ends. */
void rt_log_step(RtLog *log, const RtStepReport *report);
void rt_log_close(RtLog *log);

/* --- progress.c ----------------------------------------------------------------------------- */

/* On a terminal the line stays until the next one replaces it, unless `keep`; elsewhere only kept lines are printed,
   and none once the run `is_ending` by a signal: whoever sent it may read no more, and the line would wait for it
   forever. */
void rt_progress_print(const RtStepReport *report, bool keep, bool is_ending);

#endif
