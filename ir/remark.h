/* remark.h -- the decisions of passes, reported on request. */
#ifndef MPC_REMARK_H
#define MPC_REMARK_H

#include "ir.h"

bool tells_remarks(const Module *m); /* has somebody asked for those of the pass that runs? */

/* Explains a decision about an op: printed with its .mdl location, if tells_remarks(). */
void remark(Module *m, const Op *op, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
