/* extent.h -- bounds checks of emitted code: no access may exceed what the memory pass has planned.  Every access is
 * checked by its sizes and strides, in every compilation; a violation is reported as an internal error. */
#ifndef MPC_EXTENT_H
#define MPC_EXTENT_H

#include "ir/ir.h"

/* `dims` nested loops over memory: number of iterations and stride in elements of each. */
typedef struct {
    int dims;
    int64_t size[2 * MAX_RANK + 4], stride[2 * MAX_RANK + 4];
} Access;

void add_access(Access *access, int64_t size, int64_t stride);

/* Does the access, from the first element of a value with this type and storage, stay inside of the value? */
bool access_stays_inside(Module *m, const Op *op, Name name, const Type *type, const Storage *storage,
                         const Access *access);

/* Has the value `count` contiguous elements? */
bool holds(Module *m, const Op *op, const Value *value, int64_t count);

/* Are all values of the program inside their frames, and views inside the viewed values? */
bool check_frames(Module *m);

int64_t stride_of(const Value *value, Name dim); /* 0 where the value does not have the dim */

#endif
