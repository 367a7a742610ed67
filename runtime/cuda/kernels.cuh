/* kernels.cuh -- what generated CUDA kernels include: elements, reductions, and the kernels that do not depend on a
 * model.  Compiled with -default-device: the functions that come from runtime/kernels/ and philox.h say nothing. */
#ifndef MPC_CUDA_KERNELS_H
#define MPC_CUDA_KERNELS_H

#include "attend.cuh"
#include "attend_f32.cuh"
#include "attend_grad.cuh"
#include "copy.cuh"
#include "element.cuh"
#include "gather.cuh"
#include "message.cuh"
#include "reduce.cuh"
#include "rope.cuh"

#include "../kernels/activation.h"
#include "../kernels/integer.h"
#include "../kernels/random.h"

#endif
