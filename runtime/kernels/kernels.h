/* kernels.h -- the kernels that do not depend on a model, for inclusion in generated code.
 *
 * They are parallel over OpenMP with a fixed division of work: the same bits for any number of threads.
 * Shapes come in by value.  gcc makes a function of each parallel region before it inlines anything, so that
 * in there no shape is a constant: types are asked once a row, never once an element, and inner loops are fast
 * for sizes known at run time.  Arithmetic is f32.
 */
#ifndef MPC_KERNELS_H
#define MPC_KERNELS_H

#include "activation.h"
#include "attend.h"
#include "attend_grad.h"
#include "copy.h"
#include "element.h"
#include "gather.h"
#include "integer.h"
#include "random.h"
#include "rope.h"

#endif
