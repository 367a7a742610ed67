/* kernels.cu -- the CUDA kernels of the model $model, written by mpc from $source.
 *
 * Shapes and strides are constants. A call of the program takes the launches under its comment, in order, all with the
 * same arguments: operands, results, and scratch where there is any.
 */
#include "cuda/kernels.cuh"

$offsets
$kernels
