/* nccl_sum.h -- elements of NCCL's types, and their sums. */
#ifndef MPC_TESTS_NCCL_SUM_H
#define MPC_TESTS_NCCL_SUM_H

#include "device.h"

#include "convert.h"

#include <nccl.h>
#include <string.h>

static size_t element_bytes(ncclDataType_t type)
{
    return type == ncclFloat32 || type == ncclInt32 ? 4 : type == ncclUint8 ? 1 : 2;
}

static float load(ncclDataType_t type, const char *at, int64_t i)
{
    float value;
    uint16_t bits;
    if (type == ncclFloat32) {
        memcpy(&value, at + 4 * i, 4);
        return value;
    }
    memcpy(&bits, at + 2 * i, 2);
    return type == ncclBfloat16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
}

static void store(ncclDataType_t type, char *at, int64_t i, float value)
{
    uint16_t bits = type == ncclBfloat16 ? rt_bf16_of_float(value) : rt_f16_of_float(value);
    if (type == ncclFloat32)
        memcpy(at + 4 * i, &value, 4);
    else
        memcpy(at + 2 * i, &bits, 2);
}

/* Element i of `parts`, added up or the greatest, to element `at` of the result. */
static void combine(ncclDataType_t type, ncclRedOp_t op, int ranks, const char *const parts[], int64_t i, char *to,
                    int64_t at)
{
    static int64_t first = -1; /* the part that sums begin with */
    if (first < 0)
        first = emulated_number("EMULATED_FIRST_PART", 0);
    if (type == ncclInt32) {
        int32_t sum = 0, next;
        for (int q = 0; q < ranks; q++) {
            memcpy(&next, parts[q] + 4 * i, 4);
            sum = q == 0 ? next : op == ncclSum ? sum + next : next > sum ? next : sum;
        }
        memcpy(to + 4 * at, &sum, 4);
        return;
    }
    float sum = load(type, parts[first % ranks], i);
    for (int q = 1; q < ranks; q++) {
        float next = load(type, parts[(first + q) % ranks], i);
        sum = op == ncclSum ? sum + next : next > sum ? next : sum;
    }
    store(type, to, at, sum);
}

#endif
