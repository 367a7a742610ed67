/* ring.h -- attention whose keys pass by, as steps. */
#ifndef MPC_RING_H
#define MPC_RING_H

#include "ir.h"

void lower_rings(Module *m, Func *f);

#endif
