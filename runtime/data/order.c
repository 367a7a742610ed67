/* order.c -- a permutation computed entry by entry: a Feistel network over the next power of four, iterated along its
 * cycle until the result is below the count (J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
 * 2002). */
#include "order.h"

#include "philox.h"

enum { ROUNDS = 8 };

/* Bits of half a number: the least h with 4^h >= count. */
static int half_bits(int64_t count)
{
    int half = 1;
    while (half < 31 && (int64_t)1 << (2 * half) < count)
        half++;
    return half;
}

static int64_t feistel(int half, uint32_t seed, int64_t epoch, int64_t number)
{
    uint32_t mask = ((uint32_t)1 << half) - 1;
    uint32_t left = (uint32_t)(number >> half), right = (uint32_t)number & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        RtPhilox random =
            rt_philox(seed, RT_STREAM_ORDER, right, round, (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32));
        uint32_t next = left ^ (random.x[0] & mask);
        left = right;
        right = next;
    }
    return (int64_t)left << half | right;
}

int64_t rt_order_permute(int64_t count, uint32_t seed, int64_t epoch, int64_t position)
{
    /* Terminates: the cycle through `position` returns to it, and less than 3/4 of the numbers are outside. */
    int half = half_bits(count);
    do
        position = feistel(half, seed, epoch, position);
    while (position >= count);
    return position;
}
