/* nvrtc.h -- NVIDIA's run-time compiler, if there is one on this machine: nothing of CUDA is linked. */
#ifndef MPC_NVRTC_H
#define MPC_NVRTC_H

#include "driver.h"

#include "codegen/cuda/cuda.h"

/* Compiles all kernels for an architecture ("sm_90"), and prints what each takes.  False after an error. */
bool report_nvrtc(Run *run, const CudaProgram *program, const char *architecture);

#endif
