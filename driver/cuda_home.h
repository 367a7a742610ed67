/* cuda_home.h -- the location of CUDA on this machine. */
#ifndef MPC_CUDA_HOME_H
#define MPC_CUDA_HOME_H

#include "driver.h"

/* The path of a file of CUDA's lib64/ or lib/: of $CUDA_HOME, else of the CUDA whose nvcc is on PATH, else of
 * /usr/local/cuda; NULL if none has it. */
const char *find_in_cuda(Run *run, const char *name);

#endif
