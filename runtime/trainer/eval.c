/* eval.c -- the mean loss over --eval-data: its first batches, in the order of the file.
 *
 * A batch is train.batch sequences, independent of the micro-batch, so that runs with other micro-batches and layouts
 * evaluate the same sequences.  Of a file with less than one batch, as many whole calls as possible are used. */
#include "device.h"
#include "train.h"

#include <stdlib.h>

int64_t rt_eval_sequences(const RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval, *step = &run->rt.program->step;
    int64_t call = f->micro * f->batch, batch = step->micro * step->batch, all = rt_data_sequences(run->eval_data, f);
    int64_t batches = all / batch < run->options.eval_batches ? all / batch : run->options.eval_batches;
    int64_t sequences = batches > 0 ? batches * batch : all;
    return sequences - sequences % call;
}

double rt_evaluate(RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval;
    int64_t call = f->micro * f->batch, calls = rt_eval_sequences(run) / call;
    int64_t *sequence = rt_allocate(call, sizeof *sequence);
    double sum = 0;
    rt_exchange_average(run);
    for (int64_t c = 0; c < calls; c++) {
        for (int64_t n = 0; n < call; n++)
            sequence[n] = c * call + n;
        rt_data_fill(run->eval_data, &run->rt, f, sequence);
        rt_set_scalars(run, &f->scalars);
        rt_run(&run->rt, f);
        sum += rt_scalar(run, f, f->scalars.loss);
    }
    rt_exchange_average(run);
    free(sequence);
    return sum / (double)calls;
}
