/* nvrtc_options.h -- NVRTC options for kernels, used by a trainer when it starts and by mpc compile --nvrtc. */
#ifndef MPC_NVRTC_OPTIONS_H
#define MPC_NVRTC_OPTIONS_H

#define RT_NVRTC_OPTIONS "--std=c++20", "--device-as-default-execution-space", "--prec-div=false", "--prec-sqrt=false"

#endif
