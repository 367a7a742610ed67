/* eval.c -- the mean loss over --eval-data: its first batches, in the order of the file. */
#include "device.h"
#include "train.h"

#include <stdlib.h>

double rt_evaluate(RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval;
    int64_t batch = f->micro * f->batch, batches = rt_data_sequences(run->eval_data, f) / batch;
    if (batches > run->options.eval_batches)
        batches = run->options.eval_batches;
    int64_t *sequence = rt_allocate(batch, sizeof *sequence);
    double sum = 0;
    for (int64_t b = 0; b < batches; b++) {
        for (int64_t n = 0; n < batch; n++)
            sequence[n] = b * batch + n;
        rt_data_fill(run->eval_data, &run->rt, f, sequence);
        rt_set_scalars(run, &f->scalars);
        rt_run(&run->rt, f);
        sum += rt_scalar(run, f->scalars.loss);
    }
    free(sequence);
    return sum / (double)batches;
}
