/* sent_order.h -- the memory order of activations that messages gather and scatter. */
#ifndef MPC_SENT_ORDER_H
#define MPC_SENT_ORDER_H

#include "ir.h"

/* Of a program without layout: puts dims that `else` splits before the batch, where a rank has several sequences of a
 * micro-batch. */
void order_sent(Module *m);

#endif
