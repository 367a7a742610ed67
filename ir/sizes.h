/* sizes.h -- limits to the size of programs, and products and sums of sizes that users give.
 *
 * The frontend and the verifier reject what is larger, so other code multiplies sizes without checks.
 */
#ifndef MPC_SIZES_H
#define MPC_SIZES_H

#include "ir.h"

/* Parameters of a model, each copy of a repeat counted: a checkpoint has a name for each. */
enum { MAX_TENSORS = 1 << 24 };

/* No machine can hold more: elements of one tensor, and of all parameters; bytes of one tensor on one rank. */
#define MAX_ELEMENTS (INT64_C(1) << 48)
#define MAX_BYTES (INT64_C(1) << 46)

/* Of numbers from 0; INT64_MAX if it is larger. */
int64_t checked_sum(int64_t a, int64_t b);

/* One for each copy of the repeats around it; INT64_MAX if there are more. */
int64_t tensor_count(const Param *param);

/* Bytes in memory, on one rank, as local_bytes(); INT64_MAX if there are more. */
int64_t checked_bytes(const Module *m, const Type *type);

#endif
