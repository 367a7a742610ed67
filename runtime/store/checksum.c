/* checksum.c -- checksums: per element, one multiplication to spread the index and one to mix. */
#include "checksum.h"

#include <string.h>

static const uint64_t spread = 0x9E3779B97F4A7C15u; /* 2^64 / the golden ratio: spreads consecutive indices */

/* Each line is invertible, and therefore the whole (as in the finalizers of D. Stafford's Mix13). */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}

uint64_t rt_checksum(const void *elements, int width, int64_t first, int64_t count)
{
    enum { WORTH_IT = 1 << 14 }; /* minimum number of elements for several threads */
    const char *from = elements;
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (count >= WORTH_IT)
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = 0; /* little-endian, like the file */
        if (width == 4)
            memcpy(&bits, from + 4 * i, 4);
        else
            memcpy(&bits, from + 2 * i, 2);
        sum += mix((uint64_t)(first + i) * spread + bits);
    }
    return sum;
}
