/* compose.h -- functions composed of primitive ops: of NULL, they give NULL. */
#ifndef MPC_COMPOSE_H
#define MPC_COMPOSE_H

#include "emit.h"

Value *sum_over(Lower *l, Value *x, Names dims);
double count_over(const Lower *l, const Value *x, Names dims); /* the number of elements of a mean */
Value *mean_over(Lower *l, Value *x, Names dims);
Value *softmax(Lower *l, Value *x, Names dims);
Value *log_softmax(Lower *l, Value *x, Names dims);
Value *logsumexp(Lower *l, Value *x, Names dims);
Value *layernorm(Lower *l, Value *x, Names dims, double eps);
Value *rmsnorm(Lower *l, Value *x, Names dims, double eps);
Value *attention(Lower *l, const Attrs *attrs, Value *q, Value *k, Value *v, Value *const segments[2], Value *bias,
                 Value *sinks); /* as by the op attend */
Value *cross_entropy(Lower *l, Value *logits, Value *labels, Name dim, double ignore);
Value *one_hot(Lower *l, Value *index, Dim along);
Value *gather_along(Lower *l, Value *x, Value *index,
                    Dim along);               /* x[along = index], for each element of the shared dims */
Operand largest_of(Lower *l, Operand chosen); /* the elements that a call of top_k chose; WRONG: it is none */

#endif
