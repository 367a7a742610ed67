/* checksum.c -- checksums of random elements, by each of the ways of the runtime, against the formula of checksum.h one
 * element at a time.  Says what differs first, and ends with status 1. */
#include "store/checksum.c"

#include <stdio.h>
#include <stdlib.h>

static uint64_t one_by_one(const unsigned char *from, int width, int64_t first, int64_t count)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = 0;
        for (int b = width; b-- > 0;)
            bits = bits << 8 | from[width * i + b];
        uint64_t x = (uint64_t)(first + i) * 11400714819323198485u + bits;
        x = (x ^ x >> 32) * 15485907386658061715u;
        sum += x ^ x >> 32;
    }
    return sum;
}

int main(void)
{
    enum { MOST = 40000 };
    static char bytes[4 * MOST + 8];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(rand() >> 7);
    for (int i = 0; i < 400; i++) {
        const int width = i % 2 ? 2 : 4;
        const int64_t count = rand() % (i % 10 ? 300 : MOST), first = (int64_t)rand() * rand();
        const char *from = bytes + rand() % 8;
        const uint64_t sum = one_by_one((const unsigned char *)from, width, first, count);
        if (rt_checksum(from, width, first, count) != sum || sum_of_any(from, width, first, count) != sum ||
            (has_512_bits() && sum_by_512_bits(from, width, first, count) != sum)) {
            printf("%lld elements of %d bytes from %lld on\n", (long long)count, width, (long long)first);
            return 1;
        }
    }
    return 0;
}
