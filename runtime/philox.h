/* philox.h -- Philox4x32-10: random numbers that are a function of a key and a counter (J. K. Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011).  The random number of an element depends only on its global index, so
 * no result depends on layout, threads or order. */
#ifndef MPC_RUNTIME_PHILOX_H
#define MPC_RUNTIME_PHILOX_H

#include <stdint.h>

typedef struct {
    uint32_t x[4];
} RtPhilox;

/* Second key words, one for each stream of random numbers.  Initial weights use a hash of the tensor's name. */
enum { RT_STREAM_DROPOUT = 0x64726f70, RT_STREAM_ORDER = 0x6f726472, RT_STREAM_SAMPLE = 0x73616d70 };

static inline RtPhilox rt_philox(uint32_t key0, uint32_t key1, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * c0, product1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t next0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0, next2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
        c1 = (uint32_t)product1;
        c3 = (uint32_t)product0;
        c0 = next0;
        c2 = next2;
        key0 += 0x9E3779B9u; /* the golden ratio, and sqrt(3) - 1 */
        key1 += 0xBB67AE85u;
    }
    RtPhilox result = { { c0, c1, c2, c3 } };
    return result;
}

/* In (0, 1), excluding both ends. */
static inline double rt_unit(uint32_t x) { return ((double)x + 0.5) * 0x1p-32; }

#endif
