/* types.h -- shared by the host and all kernels: element types, offsets in a split dim, initial values.  Compiled as C
 * and as CUDA C++. */
#ifndef MPC_TYPES_H
#define MPC_TYPES_H

#include <stdbool.h>
#include <stdint.h>

enum { RT_MAX_RANK = 8 };

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

typedef enum { RT_ZEROS, RT_ONES, RT_NORMAL, RT_UNIFORM, RT_CONSTANT } RtInitKind;

/* zeros, ones; normal: standard deviation a; uniform: from a to b; constant: a. */
typedef struct {
    RtInitKind kind;
    double a, b;
} RtInit;

typedef struct {
    int64_t size, whole, stride; /* of this rank's part, with padding; of the whole tensor; in elements */
    RtPart part;
} RtInitialDim;

/* What a tensor is filled with: see kernels/initial.h.  Its dims from the innermost one on. */
typedef struct {
    RtInit init;
    RtType type;
    uint32_t seed, hash; /* of its name */
    int32_t rank;
    int64_t offset, count; /* bytes, in the arena; elements of this rank's part */
    RtInitialDim dim[RT_MAX_RANK];
} RtInitial;

/* The first index out of range on all ranks, recorded by a kernel for the trainer to report. */
typedef struct {
    int32_t is_claimed;
    int64_t index, size;
    char dim[64], where[160]; /* truncated */
} RtBadIndex;

#endif
