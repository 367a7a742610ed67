/* checksum.c -- checksums: per element, one multiplication to spread the index and one to mix.  Both are of 64 bits,
 * which of all vectors only those of AVX-512 have: with them it takes a third of the time, and as long again for memory
 * unless that is asked for ahead. */
#include "checksum.h"

#include "processor_has.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static const uint64_t spread = 0x9E3779B97F4A7C15u; /* 2^64 / the golden ratio: spreads consecutive indices */

/* Each line is invertible, and therefore the whole (as in the finalizers of D. Stafford's Mix13). */
static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}

static inline __attribute__((always_inline)) uint64_t sum_of(const char *from, int width, int64_t first, int64_t count)
{
    enum { LINE = 64, BLOCK = 256, AHEAD = 1024 }; /* bytes, elements, bytes */
    uint64_t sum = 0;
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        const int64_t end = count - begin < BLOCK ? count : begin + BLOCK;
        for (int64_t line = width * begin; line < width * end; line += LINE)
            __builtin_prefetch(from + line + AHEAD);
#pragma omp simd reduction(+ : sum)
        for (int64_t i = begin; i < end; i++) {
            uint32_t bits = 0; /* little-endian, like the file */
            memcpy(&bits, from + width * i, (size_t)width);
            sum += mix((uint64_t)(first + i) * spread + bits);
        }
    }
    return sum;
}

static uint64_t sum_of_any(const char *from, int width, int64_t first, int64_t count)
{
    return width == 4 ? sum_of(from, 4, first, count) : sum_of(from, 2, first, count);
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx512dq"))) static uint64_t sum_by_512_bits(const char *from, int width, int64_t first,
                                                                            int64_t count)
{
    return width == 4 ? sum_of(from, 4, first, count) : sum_of(from, 2, first, count);
}
#else
#define sum_by_512_bits sum_of_any
#endif

/* Asked once: a virtual machine takes long to answer. */
static bool has_512_bits(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int known;
    if (known == UNKNOWN)
        known = rt_processor_has("avx512f") && rt_processor_has("avx512dq") ? YES : NO;
    return known == YES;
}

uint64_t rt_checksum(const void *elements, int width, int64_t first, int64_t count)
{
    enum { PART = 1 << 14 }; /* elements, for one of several threads */
    const bool is_wide = has_512_bits();
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (count > PART)
    for (int64_t i = 0; i < count; i += PART) {
        const char *from = (const char *)elements + width * i;
        const int64_t n = count - i < PART ? count - i : PART;
        sum += is_wide ? sum_by_512_bits(from, width, first + i, n) : sum_of_any(from, width, first + i, n);
    }
    return sum;
}
