/* train.c -- the loop over steps. */
#include "train.h"

#include "device.h"
#include "mesh/comm.h"
#include "philox.h"
#include "schedule.h"
#include "signals.h"
#include "store/map.h"
#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Scalars -------------------------------------------------------------------------------- */

static void put(RtRun *run, int64_t offset, const void *word)
{
    if (offset >= 0)
        memcpy(rt_upload_place(&run->rt, rt_own_place(&run->rt, offset), 4), word, 4);
}

void rt_set_scalars(RtRun *run, const RtScalars *scalars)
{
    int32_t step = (int32_t)run->place.step;
    float lr = (float)rt_schedule_lr(&run->rt.program->schedule, step);
    uint32_t key = rt_philox(run->place.seed, RT_STREAM_DROPOUT, (uint32_t)step, 0, 0, 0).x[0];
    put(run, scalars->step, &step);
    put(run, scalars->lr, &lr);
    put(run, scalars->key, &key);
    const int32_t pending = run->is_pending;
    put(run, scalars->pending, &pending);
}

void rt_set_position(RtRun *run, int64_t position)
{
    const int32_t number = (int32_t)position;
    put(run, run->rt.program->predict.scalars.position, &number);
}

void rt_finish_update(RtRun *run)
{
    if (run->is_pending)
        rt_run(&run->rt, &run->rt.program->finish);
    run->is_pending = false;
}

void rt_begin_step(RtRun *run)
{
    if (!run->is_pending && run->rt.program->begin.run)
        rt_run(&run->rt, &run->rt.program->begin);
}

void rt_set_totals(RtRun *run, const RtFunction *f)
{
    for (int i = 0; i < f->ntotals; i++)
        put(run, f->totals[i].divisor, &run->totals[i]);
}

double rt_scalar(const RtRun *run, const RtFunction *f, int64_t offset)
{
    float value;
    if (offset < 0)
        return NAN;
    rt_download(&run->rt, &value, rt_place_in(&run->rt, f, offset), sizeof value);
    return (double)value;
}

/* Fetches what a step says of its experts; allocates the list at the first one. */
static RtLayers layers_of(const RtRun *run, const RtMeasure *measures, int count, RtLayers layers)
{
    int64_t all = 0;
    for (int i = 0; i < count; i++)
        all += measures[i].copies;
    if (!layers.at && all)
        layers = (RtLayers){ (int)all, rt_allocate(all, sizeof *layers.at) };
    float *to = layers.at;
    for (int i = 0; i < count; to += measures[i++].copies)
        rt_download(&run->rt, to, rt_place_in(&run->rt, &run->rt.program->step, measures[i].offset),
                    measures[i].copies * (int64_t)sizeof *to);
    return layers;
}

static RtLabels labels_of(const RtRun *run, const RtFunction *f, RtLabels labels)
{
    if (!labels.at)
        labels = (RtLabels){ f->ntotals, rt_allocate(f->ntotals, sizeof *labels.at) };
    for (int i = 0; i < f->ntotals; i++)
        labels.at[i] = rt_scalar(run, f, f->totals[i].count);
    return labels;
}

int64_t rt_skipped_steps(const RtRun *run)
{
    const RtFunction *f = &run->rt.program->step;
    int32_t count;
    if (f->scalars.skipped_steps < 0)
        return -1;
    rt_download(&run->rt, &count, rt_place_in(&run->rt, f, f->scalars.skipped_steps), sizeof count);
    return count;
}

/* --- One step ------------------------------------------------------------------------------- */

/* The sequences of the next batch; owned by the caller. */
static int64_t *next_sequences(const RtRun *run)
{
    const RtFunction *f = &run->rt.program->step;
    int64_t batch = f->micro * f->batch;
    int64_t *sequence = rt_allocate(batch, sizeof *sequence);
    for (int64_t n = 0; n < batch; n++)
        sequence[n] = rt_mixture_at(run->mixture, run->place.position + n);
    return sequence;
}

/* Before ranks synchronise: reads the next batch, and checks what cannot be reported in the middle of a step. */
static void look_ahead(RtRun *run)
{
    if (run->log.failure && !run->failure)
        run->failure = rt_text("%s", run->log.failure);
    if (run->failure || run->place.step >= run->options.steps)
        return;
    int64_t *sequence = next_sequences(run);
    run->failure = rt_data_fetch(run->data, sequence);
    free(sequence);
}

/* What the step reached is saved before. */
static void check_evaluation(const RtRun *run)
{
    if (!isfinite(run->eval_loss) && !run->signal && !run->has_failure)
        rt_end(RT_EXIT_DIVERGED,
               "evaluation at step %lld: the loss is %s: weights, or numbers of --eval-data, are too large or not "
               "finite; a note of --load names tensors that are not",
               (long long)run->place.step, isnan(run->eval_loss) ? "nan" : "infinite");
}

/* fp16 skips a step whose gradients overflow and lowers the loss scale; otherwise the run ends. */
static void check_finite(RtRun *run, const RtStepReport *report)
{
    const bool norm_is_bad =
        isnan(report->loss_scale) && run->rt.program->step.scalars.grad_norm >= 0 && !isfinite(report->grad_norm);
    const bool is_good = isfinite(report->loss) && !norm_is_bad;
    if (run->saving && rt_saving_is_under_way(run->saving) && rt_comm_max(&run->rt, is_good ? 0 : 1) > 0)
        rt_saves_advance(run, true);
    if (is_good)
        return;
    char *saved = run->saved_at >= 0  ? rt_text("%s holds step %lld", run->options.save, (long long)run->saved_at)
                  : run->options.load ? rt_text("--load %s is intact", run->options.load)
                                      : rt_text("none (give --save with --save-every)");
    /* Printed without the sign of a NaN. */
    const double bad = isfinite(report->loss) ? report->grad_norm : report->loss;
    rt_end(RT_EXIT_DIVERGED,
           "step %lld: the %s is %g; last checkpoint: %s; a lower learning rate, a longer warmup or train.clip helps, "
           "or check the data",
           (long long)report->step, isfinite(report->loss) ? "gradient norm" : "loss", isnan(bad) ? NAN : bad, saved);
}

/* Statistics of collectives since `before`. */
static RtTraffic traffic_since(const Rt *rt, RtTraffic before)
{
    RtTraffic now = rt_collectives_traffic(rt);
    return (RtTraffic){ .calls = now.calls - before.calls,
                        .sent_bytes = now.sent_bytes - before.sent_bytes,
                        .seconds = now.seconds - before.seconds,
                        .waited = now.waited - before.waited };
}

/* The same of offloaded tensors. */
static RtFarTraffic far_since(const Rt *rt, RtFarTraffic before)
{
    const RtFarTraffic now = rt_far_traffic(rt);
    return rt->far ? (RtFarTraffic){ .moved = now.moved - before.moved, .waited = now.waited - before.waited } : now;
}

static int64_t most_bytes(const RtRun *run)
{
    int64_t most = 0;
    for (int rank = 0; rank < run->rt.ranks; rank++)
        most = run->rank_bytes[rank] > most ? run->rank_bytes[rank] : most;
    return most;
}

/* False: it does not count. */
static bool run_step(RtRun *run, RtStepReport *report)
{
    Rt *rt = &run->rt;
    const RtProgram *program = rt->program;
    const RtScalars *scalars = &program->step.scalars;
    double begin = rt_seconds(), waited_before = rt_copies_waited(rt);
    RtTraffic before = rt_collectives_traffic(rt);
    RtFarTraffic far_before = rt_far_traffic(rt);
    rt_trace_step(rt, run->place.step + 1);
    const int runs = rt_replay_step(run);
    if (runs == 0)
        return false;
    run->place.position += program->step.micro * program->step.batch;
    double seconds = rt_seconds() - begin, lr = rt_schedule_lr(&program->schedule, run->place.step);

    RtFarTraffic far = far_since(rt, far_before);
    run->far.moved += far.moved;
    run->far.waited += far.waited;
    run->spent_s += seconds;

    double speed = program->flops_per_step / seconds;
    if (speed > run->peak && !run->options.peak_flops) /* other load has ended since the peak was measured */
        run->peak = speed;

    const RtFunction *f = &program->step;
    run->loads = layers_of(run, f->loads, f->nloads, run->loads);
    run->dropped = layers_of(run, f->dropped, f->ndropped, run->dropped);
    run->labels = labels_of(run, f, run->labels);
    const RtTraffic traffic = traffic_since(rt, before);
    run->last_s = seconds;
    run->waited_s = traffic.waited;
    const int64_t skipped = rt_skipped_steps(run), skipped_before = run->skipped_steps;
    run->skipped_steps = skipped;
    run->place.step++;
    run->step_s = run->step_s > 0 ? 0.9 * run->step_s + 0.1 * seconds : seconds;
    *report = (RtStepReport){ .step = run->place.step,
                              .steps = run->options.steps,
                              .loss = rt_scalar(run, &program->step, scalars->loss),
                              .grad_norm = rt_scalar(run, &program->step, scalars->grad_norm),
                              .loss_scale = rt_scalar(run, &program->step, scalars->loss_scale),
                              .skipped_steps = skipped,
                              .is_skipped = skipped > skipped_before,
                              .labels = run->labels,
                              .lr = (double)(float)lr,
                              .seconds = seconds,
                              .left_s = (double)(run->options.steps - run->place.step) * run->step_s,
                              .tokens_per_s = (double)program->tokens_per_step / seconds,
                              .takes_records = program->takes_records,
                              .mfu = speed / run->peak,
                              .bytes = most_bytes(run),
                              .ranks = rt->ranks,
                              .rank_bytes = program->step.kinds ? run->rank_bytes : NULL,
                              .traffic = traffic,
                              .pace = &run->pace,
                              .save_waited_s = rt_copies_waited(rt) - waited_before,
                              .far = far,
                              .expert_load = run->loads,
                              .dropped = run->dropped,
                              .runs = run->options.given.replay ? runs : -1 };
    return true;
}

/* --- Interruptions -------------------------------------------------------------------------- */

/* All ranks end at the same call if any of them has received a signal. */
bool rt_has_signal(RtRun *run)
{
    const int most = (int)rt_comm_max(&run->rt, rt_signals_caught());
    if (!run->has_failure)
        run->signal = most;
    return most > 0;
}

/* ... or at the same step, if any has found a failure. */
bool rt_is_interrupted(RtRun *run)
{
    enum { FAILURE = 1000 }; /* greater than all signals */
    if (!run->failure)
        run->failure = rt_map_fault();
    const double reason = run->failure ? FAILURE : rt_signals_caught();
    int most = (int)fmin(rt_pace_gather(&run->pace, &run->rt, reason, run->last_s, run->waited_s), FAILURE);
    run->has_failure = most == FAILURE;
    run->signal = run->has_failure ? 0 : most;
    return most > 0;
}

/* --- The loop ------------------------------------------------------------------------------- */

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static RtEvaluation evaluate(RtRun *run)
{
    RtEvaluation evaluation = rt_evaluate(run);
    rt_is_interrupted(run); /* a rank that could not read its part of the data? */
    evaluation.is_whole &= !run->has_failure;
    if (evaluation.is_whole)
        run->eval_loss = evaluation.loss;
    if (!evaluation.is_whole && !run->has_failure)
        rt_note("the evaluation of step %lld was interrupted: it has no loss", (long long)run->place.step);
    return evaluation;
}

/* Once: it may be so in many steps. */
static void note_lack_of_labels(RtRun *run)
{
    bool lacks = false;
    for (int i = 0; i < run->labels.count; i++)
        lacks |= run->labels.at[i] <= 0;
    if (!lacks || run->has_told_labels)
        return;
    rt_note("note: step %lld: no label of the batch counts%s: that part of the loss, and its gradients, are 0; the "
            "optimizer makes its update all the same",
            (long long)run->place.step, run->labels.count > 1 ? " in a mean of cross_entropy" : "");
    run->has_told_labels = true;
}

static void report_step(RtRun *run, RtStepReport *report)
{
    const RtOptions *options = &run->options;
    bool is_best = false;
    if (run->eval_data && (is_due(options->eval_every, report->step) || report->step == options->steps))
        report->evaluation = evaluate(run);
    if (report->evaluation.is_whole)
        is_best = rt_best_count(run, report->evaluation.loss);
    bool is_last = report->step == options->steps || run->signal || run->has_failure || rt_best_is_out_of_patience(run);
    note_lack_of_labels(run);
    report->save_s = options->save_every ? run->save_s : NAN;
    run->save_s = 0;
    rt_log_step(&run->log, report);
    if (run->rt.rank == 0)
        rt_progress_print(report,
                          is_last || report->step == run->begun_at + 1 || is_due(options->print_every, report->step) ||
                              report->evaluation.is_whole,
                          run->signal);
    const bool is_periodic = is_due(options->save_every, report->step), is_kept = is_best && options->keep_best;
    if (options->save && (is_periodic || is_kept))
        rt_saves_begin(run, is_periodic, is_kept);
}

static bool goes_on(RtRun *run)
{
    look_ahead(run);
    return !rt_is_interrupted(run) && run->place.step < run->options.steps;
}

static void note_patience(const RtRun *run)
{
    const RtPlace *place = &run->place;
    rt_note("the loss of evaluation has not come below %.6f, that of step %lld, in %s: the run ends at step %lld, as "
            "--patience says",
            place->best_loss, (long long)place->best_step, rt_count_text(place->not_better, "evaluation").text,
            (long long)place->step);
}

void rt_train(RtRun *run)
{
    for (bool more = goes_on(run) && !rt_best_is_out_of_patience(run); more;) {
        RtStepReport report;
        if (!run_step(run, &report)) {
            rt_is_interrupted(run); /* as all ranks find out */
            break;
        }
        check_finite(run, &report);
        rt_watched_tell(run);
        more = goes_on(run);
        rt_pace_count(&run->pace, &run->rt, report.step);
        rt_saves_advance(run, false);
        report_step(run, &report);
        more =
            more && !run->signal && !run->has_failure && isfinite(run->eval_loss) && !rt_best_is_out_of_patience(run);
    }
    if (run->place.step < run->options.steps && rt_best_is_out_of_patience(run) && !run->signal && !run->has_failure)
        note_patience(run);
    bool has_begun = run->place.step > run->begun_at || !(run->signal || run->has_failure);
    if (run->options.save && has_begun)
        rt_saves_end(run);
    rt_trace_close(&run->rt);
    if (run->options.steps == 0 && run->eval_data && !run->signal) {
        const RtEvaluation evaluation = evaluate(run);
        if (run->rt.rank == 0 && evaluation.is_whole) {
            rt_progress_print_evaluation(&evaluation);
            printf("\n");
        }
    }
    check_evaluation(run);
}
