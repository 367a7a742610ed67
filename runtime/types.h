/* types.h -- shared by the host and all kernels: element types, and offsets in a split dim.  Compiled as C and as CUDA
 * C++. */
#ifndef MPC_TYPES_H
#define MPC_TYPES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { RT_F32, RT_BF16, RT_F16, RT_I32, RT_BOOL } RtType;

/* This rank's elements of a split dim: element i of its part is element first + i of the whole, and from `jump_from` on
 * first + i + jump (two pieces in zig-zag). */
typedef struct {
    int64_t first, jump_from, jump;
} RtPart;

static inline int64_t rt_position(RtPart part, int64_t i)
{
    return part.first + i + (i >= part.jump_from ? part.jump : 0);
}

/* The first index out of range on all ranks, recorded by a kernel for the trainer to report. */
typedef struct {
    int32_t is_claimed;
    int64_t index, size;
    char dim[64], where[160]; /* truncated */
} RtBadIndex;

#endif
