/* log.h -- the record of a step: a line of JSON in --log, a line on the terminal. */
#ifndef MPC_RUNTIME_LOG_H
#define MPC_RUNTIME_LOG_H

#include "far/far.h"
#include "mesh/comm.h"
#include "pace.h"

/* A number for each layer with experts; none: count is 0. */
typedef struct {
    int count;
    float *at;
} RtLayers;

/* How many labels count in each mean of cross_entropy whose labels may be ignored; none: count is 0. */
typedef struct {
    int count;
    double *at;
} RtLabels;

/* The loss over --eval-data. */
typedef struct {
    bool is_whole;   /* all of it was evaluated; else the loss has no value */
    double loss;     /* of a mean without labels 0 */
    RtLabels labels; /* of all sequences */
} RtEvaluation;

/* Figures of a finished step.  NAN: not available. */
typedef struct {
    int64_t step, steps; /* steps done, including this one; total steps */
    double loss, grad_norm, lr, loss_scale;
    RtLabels labels;         /* of the batch */
    RtEvaluation evaluation; /* after the step, if is_whole */
    int64_t skipped_steps;   /* so far; -1: none are skipped */
    bool is_skipped;         /* train.skip_spikes: its update was */
    double seconds, left_s;  /* of this step; until the end of the run */
    double tokens_per_s;     /* or records */
    bool takes_records;
    double mfu;    /* model flops utilisation: the model's flops/s over those of the best product */
    int64_t bytes; /* of memory, on the rank that has most */
    int ranks;
    const int64_t *rank_bytes; /* on each; NULL: all have as much */
    RtTraffic traffic;         /* of this step and rank */
    double save_s;             /* that training stood still for saves since the step before; NAN: no --save-every */
    double save_waited_s;      /* of this step, for a copy; on a GPU NAN */
    const RtPace *pace;        /* likewise, of all ranks */
    RtFarTraffic far;          /* likewise, of offloaded tensors; moved is below 0: none are */
    RtLayers expert_load;      /* the most choices of an expert over the mean, */
    int runs;                  /* of the step: 2 where it was replayed; -1: no --replay */
    RtLayers dropped;          /* and the share that found no slot, where there is a capacity */
} RtStepReport;

typedef struct {
    const char *path; /* NULL: no --log */
    int file;
    char *failure; /* NULL: no error */
} RtLog;

/* Opens --log and writes to it once, to detect a full disk now.  Removes the lines of steps after `step`, which the run
 * will repeat.  Ends the trainer if that would remove anything else: any content for a fresh run (step 0), unless
 * `overwrite`, or it ends by step `unsaved`: up to there a run may have come that left no checkpoint. */
RtLog rt_log_open(const char *path, int64_t step, int64_t unsaved, bool overwrite);

/* If a line cannot be written, sets `failure` and ends the log, so that the run can be saved before it ends. */
void rt_log_step(RtLog *log, const RtStepReport *report);
void rt_log_close(RtLog *log);

/* --- progress.c ----------------------------------------------------------------------------- */

/* On a terminal the line stays until the next one replaces it, unless `keep`; elsewhere only kept lines are printed,
 * and none if the run `is_ending` by a signal: its sender may have stopped reading, and the write would block
 * forever. */
void rt_progress_print(const RtStepReport *report, bool keep, bool is_ending);

/* "eval loss 3.141593", without an end of the line. */
void rt_progress_print_evaluation(const RtEvaluation *evaluation);

#endif
