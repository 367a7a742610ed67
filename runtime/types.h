/* types.h -- shared by the host and all kernels: element types, and offsets in a split dim.  Compiled as C and as CUDA
 * C++. */
#ifndef MPC_TYPES_H
#define MPC_TYPES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { RT_F32, RT_BF16, RT_F16, RT_I32, RT_BOOL } RtType;

/* Which elements of a split dim this rank has: element i of its part is number first + i of the whole, and from
 * `jump_from` on first + i + jump (two pieces in zig-zag). */
typedef struct {
    int64_t first, jump_from, jump;
} RtPart;

static inline int64_t rt_position(RtPart part, int64_t i)
{
    return part.first + i + (i >= part.jump_from ? part.jump : 0);
}

/* The first index that was in no rank's table: what a kernel leaves for the trainer to say. */
typedef struct {
    int32_t is_claimed;
    int64_t index, size;
    char dim[64], where[160]; /* as much of them as there is room for */
} RtBadIndex;

#endif
