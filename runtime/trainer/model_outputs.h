/* model_outputs.h -- --outputs: what the model computes for each record, in files. */
#ifndef MPC_RUNTIME_MODEL_OUTPUTS_H
#define MPC_RUNTIME_MODEL_OUTPUTS_H

#include "train.h"

/* DIR/NAME.npy, owned by the caller. */
char *rt_model_output_path(const char *folder, const RtTensor *output);

/* Before training, on all ranks: ends the trainer where a number of the data is not one that the model takes. */
void rt_model_outputs_check_data(const RtRun *run);

/* Writes them all, for all records of run->output_data, unless a signal or a failure on any rank comes between: then no
 * file changes.  All ranks call it. */
void rt_model_outputs_write(RtRun *run);

#endif
