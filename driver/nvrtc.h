/* nvrtc.h -- NVIDIA's run-time compiler, loaded if it is on this machine: mpc does not link CUDA. */
#ifndef MPC_NVRTC_H
#define MPC_NVRTC_H

#include "driver.h"

#include "codegen/cuda/cuda.h"

/* Compiles all kernels for an architecture ("sm_90"), and prints the resources of each.  False after an error. */
bool report_nvrtc(Run *run, const CudaProgram *program, const char *architecture);

#endif
