/* kernels.cuh -- included by generated CUDA kernels: elements, reductions, and model-independent kernels.  Compiled
 * with -default-device, since functions of runtime/kernels/ and philox.h have no __device__. */
#ifndef MPC_CUDA_KERNELS_H
#define MPC_CUDA_KERNELS_H

#include "attend.cuh"
#include "attend_bias.cuh"
#include "attend_f32.cuh"
#include "attend_grad.cuh"
#include "attend_hopper.cuh"
#include "copy.cuh"
#include "counted.cuh"
#include "cumulative.cuh"
#include "element.cuh"
#include "encode.cuh"
#include "experts.cuh"
#include "gather.cuh"
#include "message.cuh"
#include "reduce.cuh"
#include "rope.cuh"

#include "../kernels/activation.h"
#include "../kernels/initial.h"
#include "../kernels/integer.h"
#include "../kernels/narrow.h"
#include "../kernels/random.h"

#endif
