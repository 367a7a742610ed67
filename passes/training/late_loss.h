/* late_loss.h -- losses that the backward computes, for recompute.c. */
#ifndef MPC_LATE_LOSS_H
#define MPC_LATE_LOSS_H

#include "ir.h"

/* Lets the backward of each loop over chunks of tokens return what the loop returns, and all that is computed from
 * that, the loss, too: then the forward pass needs no such loop. */
void compute_losses_late(Module *m);

#endif
