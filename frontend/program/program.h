/* program.h -- a file as a whole: its declarations, the functions of its model. */
#ifndef MPC_PROGRAM_H
#define MPC_PROGRAM_H

#include "elaborate/lowering.h"

void declare_all(Lower *l);
void check_defines_used(Lower *l); /* by -D */
void declare_dim(Lower *l, const Ast *ast);
void declare_made_dims(Lower *l); /* those that top_k and ranges declare: made_dims.c */
void shrink_sizes(Lower *l);      /* for verification, if they are large */

Func *lower_model(Lower *l, FuncRole role);

/* predict.c: the result of PREDICT. */
Value *predicted_logits(Lower *l);

/* outputs.c: a statement `output`; the results of OUTPUTS; and of that function, which was lowered last, reports what
 * is no value of a record alone, and parameters that MODEL does not train. */
void lower_output(Lower *l, const Ast *ast);
void take_outputs(Lower *l, Func *f);
void check_model_outputs(Lower *l, const Func *outputs, const Func *model);

/* Of the function that was lowered last, MODEL or EVAL: reports it if its loss is no sum over sequences and a
 * step has several micro-batches.  Notes in the module where the loss of evaluation mixes the sequences of a batch, and
 * where it reads the balance of experts. */
void check_sum_over_sequences(Lower *l, const Func *f);

#endif
