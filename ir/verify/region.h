/* region.h -- the bytes of a tensor as a box of elements with a stride along each dim, and intersection of two. */
#ifndef MPC_REGION_H
#define MPC_REGION_H

#include "ir.h"

/* Elements of `width` bytes, which may be a row of several tensor elements: count[i] of them `stride[i]` bytes apart,
 * the widest stride first.  No count is 1. */
typedef struct {
    int64_t at, width;
    int rank;
    int64_t count[MAX_RANK], stride[MAX_RANK];
} Region;

Region plain_region(int64_t at, int64_t bytes);

/* The bytes of a placed value at address `at`; `padded`: with the padding of dims that are not split, which is never
 * read but often written. */
Region region_of(const Module *m, const Value *value, int64_t at, bool padded);

/* Only `count` elements of its first dim, from `first` on. */
Region stretch_of(const Module *m, const Value *value, int64_t at, int64_t first, int64_t count);

int64_t region_end(const Region *region); /* the end of its last byte */

bool lies_apart(const Module *m, const Value *value); /* do its rows not overlap? */

/* Do the two have a byte in common?  Exact. */
bool regions_meet(const Region *a, const Region *b);

#endif
