/* train.h -- one run of the trainer: its state, and its phases in the order in which rt_main calls them. */
#ifndef MPC_RUNTIME_TRAIN_H
#define MPC_RUNTIME_TRAIN_H

#include "data/data.h"
#include "log.h"
#include "options.h"
#include "pace.h"
#include "state.h"
#include "store/checkpoint.h"
#include "store/keep.h"
#include "store/lock.h"
#include "store/save.h"

typedef struct {
    Rt rt;
    RtOptions options;
    RtData *data, *eval_data; /* NULL: not given */
    RtData *output_data;      /* of --outputs; NULL without */
    RtMixture *mixture;       /* of data; NULL without */
    RtPlace place;            /* progress of the run */
    int64_t begun_at;         /* the first step */
    int64_t saved_at;         /* the step of the newest checkpoint; -1: none in this run */
    RtSaving *saving;         /* NULL: no --save */
    double save_s;            /* that training stood still for saves, since the last line of the log */
    char *resumed;            /* by --resume: the checkpoint; NULL: there is none, or no --resume */
    bool has_loaded;
    int signal;       /* received by a rank; 0: none */
    bool has_failure; /* a rank cannot continue: the run is saved, then that rank reports why */
    char *failure;    /* the reason, on this rank; NULL: none */
    RtLog log;
    RtLock lock;             /* of --save, by the first rank */
    RtKeep keep;             /* by the first rank */
    char *best_name;         /* of the checkpoint of --keep-best; NULL: not given */
    int64_t *rank_bytes;     /* of memory */
    float *totals;           /* divisors of the evaluation that is running */
    RtLayers loads, dropped; /* of the last step */
    RtLabels labels;         /* likewise */
    RtLabels eval_labels;    /* of the last evaluation */
    bool has_told_labels;    /* that a step had none */
    double eval_loss;        /* of the last whole evaluation; 0: none yet */
    int64_t skipped_steps;   /* before the next one; -1: none are skipped */
    double peak;             /* flops/s of all ranks, of which mfu is the share: said, or of the best product */
    double step_s;           /* of a step, smoothed */
    double spent_s;          /* in steps of this run */
    RtFarTraffic far;        /* of these */
    RtPace pace;             /* of all ranks */
    bool is_pending;         /* the last step has left its update to the next one */
    double last_s, waited_s; /* the last step, and what it waited for messages */
    int progress_file;       /* of MPC_PROGRESS; -1: there is none */
    struct RtReplay *replay; /* NULL: no --replay */
} RtRun;

/* Of OpenMP: --threads, else OMP_NUM_THREADS, else the share of the machine.  threads.c */
void rt_threads_choose(RtRun *run);

/* Trains until place.step is options.steps, or a signal; evaluates, logs and saves periodically and at the end. */
void rt_train(RtRun *run);

/* --resume: makes the newest checkpoint that is whole the one of --load.  All ranks call it.  resume.c */
void rt_resume(RtRun *run);

/* What mpc run learns of the run.  watched.c */
void rt_watched_open(RtRun *run); /* the outputs are open */
void rt_watched_tell(const RtRun *run);
void rt_watched_close(RtRun *run);

/* --replay: steps that run twice.  replay.c */
void rt_replay_open(RtRun *run); /* with the device open; ends the trainer if it cannot be done */
void rt_replay_close(RtRun *run);

/* Runs a step of the program on the batch that was fetched last: once, or, where --replay says so, until two results
 * are the same.  The number of runs; 0: no two are, run->failure says on one rank where they differ, and the state is
 * that before the step. */
int rt_replay_step(RtRun *run);

/* --save: what is copied and written beside training, if it is saved before the end.  saves.c */
void rt_saves_open(RtRun *run); /* with the device open */

/* Of the step that has ended; the last save is complete then.  It is due by --save-every, or the best, or both. */
void rt_saves_begin(RtRun *run, bool is_periodic, bool is_best);
void rt_saves_advance(RtRun *run, bool wait); /* the one under way; all ranks call it */
void rt_saves_end(RtRun *run);                /* the last step is saved, too */

/* --keep-best and --patience: the lowest loss of an evaluation, in run->place.  best.c */
void rt_best_open(RtRun *run);                     /* with the state loaded */
bool rt_best_count(RtRun *run, double loss);       /* of an evaluation: is it the lowest so far? */
bool rt_best_is_out_of_patience(const RtRun *run); /* on all ranks, or none */

/* Has any rank received a signal or failed?  All ranks call it, between steps. */
bool rt_is_interrupted(RtRun *run);

/* Has any rank received a signal?  All ranks call it, between two calls of a function of the program. */
bool rt_has_signal(RtRun *run);

/* The number of sequences of an evaluation.  eval.c */
int64_t rt_eval_sequences(const RtRun *run);

/* The sequences of the call of an evaluation that begins at number `begin`; in place of those behind the last of all,
 * the call repeats its own, whose number it returns.  eval.c */
int64_t rt_eval_call(const RtRun *run, int64_t begin, int64_t sequences, int64_t *sequence);

/* Mean loss over the first batches of --eval-data, or not the whole of it after a signal; its labels are
 * run->eval_labels.  eval.c */
RtEvaluation rt_evaluate(RtRun *run);

/* --ema: weights and the mean of them change places; twice: nothing has changed.  average.c */
void rt_exchange_average(RtRun *run);
bool rt_has_average(const RtProgram *program);

/* Prints --sample bytes after --prompt, on stdout.  sample.c */
void rt_sample(RtRun *run);

/* Makes the update that the last step has left, if it has: before anything but a step reads the state, or changes it.
 */
void rt_finish_update(RtRun *run);

/* Before a step: reads what the one before would have read for it, if there is none or something else has run since. */
void rt_begin_step(RtRun *run);

/* Writes the input scalars of a function before it runs. */
void rt_set_scalars(RtRun *run, const RtScalars *scalars);
void rt_set_position(RtRun *run, int64_t position);  /* of a prediction */
void rt_set_totals(RtRun *run, const RtFunction *f); /* run->totals, for an evaluation */

/* The f32 result of a function at its `offset`; NAN if it has none (-1). */
double rt_scalar(const RtRun *run, const RtFunction *f, int64_t offset);

/* The steps that train.skip_spikes has skipped so far; -1: it is not set. */
int64_t rt_skipped_steps(const RtRun *run);

#endif
