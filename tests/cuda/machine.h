/* machine.h -- what runs the kernels of execute.c: the emulator (machine.c), or a GPU (tests/gpu/machine.c).
 *
 * A GPU's takes the place of emulator.h's functions for tests, too: memory that was added is the GPU's while a kernel
 * runs, and nobody watches it. */
#ifndef MPC_TESTS_MACHINE_H
#define MPC_TESTS_MACHINE_H

#include "emulator/emulator.h"

#include <stdio.h>

/* What stands before and behind the text of kernels. */
void machine_write_head(FILE *out);
void machine_write_tail(FILE *out);

/* Compiles it; `directory` is for what that takes.  NULL after saying what is wrong. */
void *machine_load(const char *source, const char *directory);
void machine_unload(void *library);

/* For emulator_launch; NULL if there is none. */
EmulatorKernel *machine_kernel(void *library, const char *name);

/* Before the launches of a rank, after memory was added. */
void machine_set_rank(void *library, int rank);

#endif
