/* eval.c -- the mean loss over --eval-data: its first batches, in the order of the file.
 *
 * A batch is train.batch sequences, independent of the micro-batch, so that runs with other micro-batches and layouts
 * evaluate the same sequences.  Of a file with less than one batch, as many whole calls as possible are used.  The loss
 * of a call is its share of that of a batch, as in a step. */
#include "device.h"
#include "train.h"

#include <stdlib.h>

int64_t rt_eval_sequences(const RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval, *step = &run->rt.program->step;
    int64_t call = f->micro * f->batch, batch = step->micro * step->batch, all = rt_data_sequences(run->eval_data);
    int64_t batches = all / batch < run->options.eval_batches ? all / batch : run->options.eval_batches;
    int64_t sequences = batches > 0 ? batches * batch : all;
    return sequences - sequences % call;
}

/* Runs it on all sequences; adds what it gives at these places to `sums`. */
static void run_all(RtRun *run, int64_t calls, int count, const int64_t places[], double sums[])
{
    const RtFunction *f = &run->rt.program->eval;
    int64_t call = f->micro * f->batch;
    int64_t *sequence = rt_allocate(call, sizeof *sequence);
    for (int64_t c = 0; c < calls; c++) {
        for (int64_t n = 0; n < call; n++)
            sequence[n] = c * call + n;
        rt_data_fill(run->eval_data, &run->rt, sequence);
        rt_set_scalars(run, &f->scalars);
        rt_set_totals(run, f);
        rt_run(&run->rt, f);
        for (int i = 0; i < count; i++)
            sums[i] += rt_scalar(run, f, places[i]);
    }
    free(sequence);
}

/* What divides the sums over labels: their number in a batch, on average, so that the mean over all batches is that
 * over all labels.  Counted by a run of its own: what counts may depend on anything. */
static void find_totals(RtRun *run, int64_t calls, double batches)
{
    const RtFunction *f = &run->rt.program->eval;
    int64_t *places = rt_allocate(f->ntotals, sizeof *places);
    double *sums = rt_allocate(f->ntotals, sizeof *sums);
    for (int i = 0; i < f->ntotals; i++)
        places[i] = f->totals[i].count, run->totals[i] = 1;
    run_all(run, calls, f->ntotals, places, sums);
    for (int i = 0; i < f->ntotals; i++)
        run->totals[i] = sums[i] > 0 ? (float)(sums[i] / batches) : 1;
    free(places);
    free(sums);
}

double rt_evaluate(RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval, *step = &run->rt.program->step;
    int64_t sequences = rt_eval_sequences(run), calls = sequences / (f->micro * f->batch);
    double sum = 0, batches = (double)sequences / (double)(step->micro * step->batch);
    run->totals = rt_allocate(f->ntotals, sizeof *run->totals);
    rt_exchange_average(run);
    if (f->ntotals)
        find_totals(run, calls, batches);
    run_all(run, calls, 1, &f->scalars.loss, &sum);
    rt_exchange_average(run);
    free(run->totals);
    return sum / batches;
}
