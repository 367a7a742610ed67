/* checksum.h -- checksum of a tensor in a checkpoint: a sum over its elements, so that ranks add the sums of their
 * parts in any order.
 *
 * Element i of the whole tensor, counted row by row, with the bits b of its 2 or 4 bytes, adds mix(i * G + b) mod 2^64;
 * mix is a bijection, so that every change of a single element is detected. */
#ifndef MPC_RUNTIME_CHECKSUM_H
#define MPC_RUNTIME_CHECKSUM_H

#include <stdint.h>

/* The sum over `count` elements of `width` bytes, from element `first` on. */
uint64_t rt_checksum(const void *elements, int width, int64_t first, int64_t count);

#endif
