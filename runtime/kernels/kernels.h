/* kernels.h -- the kernels that do not depend on a model, for inclusion in generated code.
 *
 * They are parallel with OpenMP, with a fixed division of work: results are bitwise equal for any number of threads.
 * Shapes are passed by value.  gcc turns each parallel region into a function before inlining, so that inside it no
 * shape is a constant: types are tested once per row, never per element, and inner loops are fast for sizes known at
 * run time.  Arithmetic is f32.
 */
#ifndef MPC_KERNELS_H
#define MPC_KERNELS_H

#include "activation.h"
#include "copy.h"
#include "element.h"
#include "integer.h"
#include "library.h"
#include "narrow.h"
#include "random.h"

#endif
