/* types.h -- shared by the host and all kernels: element types, offsets in a split dim, initial values.  Compiled as C
 * and as CUDA C++. */
#ifndef MPC_TYPES_H
#define MPC_TYPES_H

#include <stdbool.h>
#include <stdint.h>

enum { RT_MAX_RANK = 8 };

typedef enum { RT_F32, RT_BF16, RT_F16, RT_I32, RT_BOOL } RtType;

/* This rank's elements of a split dim.  Element i of its part is element first + i of the whole; with j = begin + i,
 * those whose j is at least `jump_from` are `jump` further (two chunks in zig-zag).  If `period` is not 0, j begins
 * anew after each period, and the elements of the next one are `skip` further (more chunks). */
typedef struct {
    int64_t first, jump_from, jump;
    int64_t begin, period, skip;
} RtPart;

/* Greater for greater i. */
static inline int64_t rt_position(RtPart part, int64_t i)
{
    const int64_t j = part.begin + i, turn = part.period ? j / part.period : 0;
    return part.first + i + turn * part.skip + (j - turn * part.period >= part.jump_from ? part.jump : 0);
}

/* The number of elements of a part of `size` whose position is less. */
static inline int64_t rt_elements_before(RtPart part, int64_t position, int64_t size)
{
    const int64_t ahead = position - part.first + part.begin;
    const int64_t turn = part.period && ahead > 0 ? ahead / (part.period + part.skip) : 0;
    int64_t rest = ahead - turn * (part.period + part.skip);
    if (rest > part.jump_from) /* in or behind the gap between two chunks */
        rest = rest - part.jump > part.jump_from ? rest - part.jump : part.jump_from;
    if (part.period && rest > part.period) /* in the gap between two periods */
        rest = part.period;
    const int64_t count = turn * part.period + rest - part.begin;
    return count < 0 ? 0 : count > size ? size : count;
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
