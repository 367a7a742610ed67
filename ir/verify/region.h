/* region.h -- the bytes that a tensor holds: a box of elements with a stride along each dim, and whether two meet. */
#ifndef MPC_REGION_H
#define MPC_REGION_H

#include "ir.h"

/* Elements of `width` bytes, which may be a row of many: count[i] of them `stride[i]` bytes apart, the widest stride
 * first.  No count is 1. */
typedef struct {
    int64_t at, width;
    int rank;
    int64_t count[MAX_RANK], stride[MAX_RANK];
} Region;

Region plain_region(int64_t at, int64_t bytes);

/* What a placed value holds of a rank's memory, from byte `at` on; `padded`: with the padding of dims that are not
 * split, which nobody reads but many write. */
Region region_of(const Module *m, const Value *value, int64_t at, bool padded);

/* Of its first dim only `count` elements, from `first` on. */
Region stretch_of(const Module *m, const Value *value, int64_t at, int64_t first, int64_t count);

int64_t region_end(const Region *region); /* behind its last byte */

bool lies_apart(const Module *m, const Value *value); /* does none of its rows reach into the next? */

/* Do the two have a byte in common?  Exact. */
bool regions_meet(const Region *a, const Region *b);

#endif
