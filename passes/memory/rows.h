/* rows.h -- tables in another tier of memory, block by block. */
#ifndef MPC_ROWS_H
#define MPC_ROWS_H

#include "ir.h"

/* Kernels that read or write state of another tier element by element see its rows in blocks: see rows.c. */
void see_rows_in_blocks(Module *m);

#endif
