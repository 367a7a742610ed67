/* check.h -- shared by the tests of kernels: arrays of any element type, random numbers, comparisons.
 *
 * References are plain loops in double over the stored operands, so only the kernel's own arithmetic and the rounding
 * of its result may differ.  All memory that a kernel must not write has a mark that is checked.
 */
#ifndef MPC_TESTS_KERNELS_CHECK_H
#define MPC_TESTS_KERNELS_CHECK_H

#include "kernels/activation.h"
#include "kernels/attend.h"
#include "kernels/attend_bias.h"
#include "kernels/attend_grad.h"
#include "kernels/copy.h"
#include "kernels/cumulative.h"
#include "kernels/element.h"
#include "kernels/experts.h"
#include "kernels/gather.h"
#include "kernels/integer.h"
#include "kernels/narrow.h"
#include "kernels/random.h"
#include "kernels/rope.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_name[] = { [RT_F32] = "f32", [RT_BF16] = "bf16", [RT_F16] = "f16" };
static const RtType float_types[] = { RT_F32, RT_BF16, RT_F16 };

/* Half a unit in the last place, relative. */
static const double rounding[] = { [RT_F32] = 0x1p-24, [RT_BF16] = 0x1p-8, [RT_F16] = 0x1p-11 };

static long checks, failures;

__attribute__((format(printf, 2, 3))) static inline void check(bool holds, const char *format, ...)
{
    checks++;
    if (holds || failures++ >= 10)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "FAIL: ");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* Is this make check-all? */
static inline bool is_for_all(void)
{
    const char *all = getenv("ALL");
    return all && strcmp(all, "1") == 0;
}

static inline int report(const char *name)
{
    printf("%-8s %ld checks, %ld failures\n", name, checks, failures);
    return failures > 0;
}

static inline uint64_t random_bits(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 24;
}

static inline int64_t pick(int64_t below) { return (int64_t)(random_bits() % (uint64_t)below); }
static inline double uniform(void) { return (double)(random_bits() & 0xFFFFFF) * 0x1p-23 - 1; }

/* Uses runtime/convert.h, which tests/runtime checks; kernels have other versions, which vectorise. */
static inline double get(const void *array, int64_t at, RtType type)
{
    if (type == RT_F32)
        return ((const float *)array)[at];
    const uint16_t bits = ((const uint16_t *)array)[at];
    return type == RT_BF16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
}

static inline void put(void *array, int64_t at, double x, RtType type)
{
    if (type == RT_F32)
        ((float *)array)[at] = (float)x;
    else
        ((uint16_t *)array)[at] = type == RT_BF16 ? rt_bf16_of_float((float)x) : rt_f16_of_float((float)x);
}

static inline int64_t type_bytes(RtType type) { return type == RT_F32 ? 4 : 2; }

static inline void *allocate(int64_t bytes)
{
    void *memory = aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
    if (!memory)
        exit(2);
    memset(memory, 0x5A, (size_t)bytes);
    return memory;
}

static inline void *random_array(int64_t count, RtType type)
{
    void *array = allocate(count * type_bytes(type));
    for (int64_t i = 0; i < count; i++)
        put(array, i, uniform(), type);
    return array;
}

static inline bool is_marked(const void *array, int64_t at, RtType type)
{
    uint32_t bits = 0;
    memcpy(&bits, (const char *)array + at * type_bytes(type), (size_t)type_bytes(type));
    return bits == (type == RT_F32 ? 0x5A5A5A5Au : 0x5A5Au);
}

/* Is `got` within `error` of `want`, and the rounding to its type? */
static inline bool is_close(double got, double want, double error, RtType type)
{
    return fabs(got - want) <= error + rounding[type] * (fabs(want) + error) + (type == RT_F16 ? 0x1p-25 : 0);
}

#endif
