/* kernels.h -- the kernels that do not depend on a model, for inclusion in generated code.
 *
 * Each is `static inline` and always inlined, so that the constant shapes with which generated
 * code calls them fold away.  They are parallel over OpenMP with a fixed division of work: the
 * same bits for any number of threads.  Element types are RtType constants; arithmetic is f32.
 */
#ifndef MPC_KERNELS_H
#define MPC_KERNELS_H

#include "activation.h"
#include "attend.h"
#include "attend_grad.h"
#include "copy.h"
#include "element.h"
#include "random.h"
#include "rope.h"
#include "take.h"

#endif
