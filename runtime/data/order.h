/* order.h -- the order of sequences: a shuffle that needs no memory. */
#ifndef MPC_RUNTIME_ORDER_H
#define MPC_RUNTIME_ORDER_H

#include <stdint.h>

/* Entry `position` of a permutation of 0 .. count-1 that depends on seed and epoch only. */
int64_t rt_order_permute(int64_t count, uint32_t seed, int64_t epoch, int64_t position);

#endif
