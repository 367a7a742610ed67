/* instructions.h -- the processor that a trainer is compiled for. */
#ifndef MPC_RUNTIME_INSTRUCTIONS_H
#define MPC_RUNTIME_INSTRUCTIONS_H

#include "rt.h"

/* Ends the trainer if this processor lacks instructions with which the program or the runtime is compiled. */
void rt_instructions_check(const RtProgram *program);

#endif
