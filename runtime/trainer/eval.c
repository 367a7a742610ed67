/* eval.c -- the loss over --eval-data: its first batches, in the order of the file.
 *
 * A batch is train.batch sequences, independent of the micro-batch, so that runs with other micro-batches and layouts
 * evaluate the same sequences.  The loss of a call is its share of that of a batch, as in a step, and so is that of a
 * part of a call, where the loss is a sum over sequences; where it is not, the sequences behind the last whole batch
 * are left out. */
#include "device.h"
#include "train.h"

#include <math.h>
#include <stdlib.h>

static int64_t batch_of(const RtFunction *f) { return f->micro * f->batch; }

int64_t rt_eval_sequences(const RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval;
    const int64_t all = rt_data_sequences(run->eval_data), batch = batch_of(&run->rt.program->step);
    const int64_t batches = run->options.eval_batches, most = all / batch < batches ? all : batches * batch;
    return f->mixes ? most - most % batch_of(f) : most;
}

int64_t rt_eval_call(const RtRun *run, int64_t begin, int64_t sequences, int64_t *sequence)
{
    const int64_t call = batch_of(&run->rt.program->eval), left = sequences - begin, own = left < call ? left : call;
    for (int64_t n = 0; n < call; n++)
        sequence[n] = begin + (n < call / own * own ? n % own : 0);
    return own;
}

static void run_call(RtRun *run, const int64_t *sequence, int count, const int64_t places[], double values[])
{
    const RtFunction *f = &run->rt.program->eval;
    rt_data_fill(run->eval_data, &run->rt, sequence);
    rt_set_scalars(run, &f->scalars);
    rt_set_totals(run, f);
    rt_run(&run->rt, f);
    for (int i = 0; i < count; i++)
        values[i] = rt_scalar(run, f, places[i]);
}

/* Adds what a call gives at these places, of `own` sequences.  If they are fewer than a call takes, it takes each of
 * them several times, and the first one in what is left; a second call, of the first one alone, says what that adds.
 * With c calls' worth of constants and B sequences in a call, n of them `own`, a loss that is a constant and a sum over
 * sequences then counts n / B of the constant. */
static void add_call(RtRun *run, int64_t *sequence, int64_t own, int count, const int64_t places[], double sums[])
{
    const int64_t call = batch_of(&run->rt.program->eval), times = call / own, rest = call % own;
    double *both = rt_allocate(2 * count, sizeof *both), *values = both, *first = both + count;
    run_call(run, sequence, count, places, values);
    for (int64_t n = 0; n < call && rest; n++)
        sequence[n] = sequence[0];
    if (rest)
        run_call(run, sequence, count, places, first);
    for (int i = 0; i < count; i++) {
        const double more = isfinite(first[i]) ? (double)rest / (double)call * first[i] : 0;
        sums[i] += (values[i] - more) / (double)times;
    }
    free(both);
}

/* Runs it on all sequences; adds what it gives at these places to `sums`.  False: a signal has ended it before. */
static bool run_all(RtRun *run, int64_t sequences, int count, const int64_t places[], double sums[])
{
    const int64_t call = batch_of(&run->rt.program->eval);
    int64_t *sequence = rt_allocate(call, sizeof *sequence), begin = 0;
    for (; begin < sequences && !rt_has_signal(run); begin += call) {
        const int64_t own = rt_eval_call(run, begin, sequences, sequence);
        add_call(run, sequence, own, count, places, sums);
    }
    free(sequence);
    return begin >= sequences;
}

/* What divides the sums over labels: their number, or the sum of weights, in a batch, on average, so that the mean over
 * all batches is that over all labels.  Counted by a run of its own: what counts may depend on anything. */
static bool find_totals(RtRun *run, int64_t sequences, double batches)
{
    const RtFunction *f = &run->rt.program->eval;
    int64_t *places = rt_allocate(f->ntotals, sizeof *places);
    double *sums = run->eval_labels.at;
    for (int i = 0; i < f->ntotals; i++)
        places[i] = f->totals[i].count, run->totals[i] = 1, sums[i] = 0;
    const bool is_whole = run_all(run, sequences, f->ntotals, places, sums);
    for (int i = 0; i < f->ntotals; i++)
        run->totals[i] = sums[i] != 0 ? (float)(sums[i] / batches) : 1;
    free(places);
    return is_whole;
}

RtEvaluation rt_evaluate(RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval;
    const int64_t sequences = rt_eval_sequences(run);
    const double batches = (double)sequences / (double)batch_of(&run->rt.program->step);
    double sum = 0;
    if (!run->eval_labels.at)
        run->eval_labels = (RtLabels){ f->ntotals, rt_allocate(f->ntotals, sizeof *run->eval_labels.at) };
    run->totals = rt_allocate(f->ntotals, sizeof *run->totals);
    rt_finish_update(run);
    rt_exchange_average(run);
    const bool is_whole =
        (!f->ntotals || find_totals(run, sequences, batches)) && run_all(run, sequences, 1, &f->scalars.loss, &sum);
    rt_exchange_average(run);
    free(run->totals);
    return (RtEvaluation){ .is_whole = is_whole, .loss = sum / batches, .labels = run->eval_labels };
}
