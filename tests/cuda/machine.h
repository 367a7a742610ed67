/* machine.h -- the machine for kernels of execute.c: the emulator (machine.c), or a GPU (tests/gpu/machine.c).
 *
 * That for a GPU also replaces emulator.h's functions for tests: added memory is on the GPU while a kernel runs, and is
 * not checked. */
#ifndef MPC_TESTS_MACHINE_H
#define MPC_TESTS_MACHINE_H

#include "emulator/emulator.h"

#include <stdio.h>

/* Writes the text before and after the kernels. */
void machine_write_head(FILE *out);
void machine_write_tail(FILE *out);

/* Compiles it; `directory` is for temporary files.  NULL after reporting an error. */
void *machine_load(const char *source, const char *directory);
void machine_unload(void *library);

/* For emulator_launch; NULL if there is none. */
EmulatorKernel *machine_kernel(void *library, const char *name);

/* Before the launches of a rank, after memory was added. */
void machine_set_rank(void *library, int rank);

#endif
