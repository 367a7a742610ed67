/* random.h -- dropout's masks: functions of a key and a global index, the same for every layout. */
#ifndef MPC_KERNELS_RANDOM_H
#define MPC_KERNELS_RANDOM_H

#include "../philox.h"
#include "element.h"

/* Is element `index` of dropout `instance` kept?  A uniform number of 24 bits is at least `rate`. */
RT_INLINE bool rt_keep(uint32_t key, uint32_t instance, int64_t index, float rate)
{
    const RtPhilox random = rt_philox(key, instance, (uint32_t)index, (uint32_t)((uint64_t)index >> 32), 0, 0);
    return (float)(random.x[0] >> 8) * 0x1p-24f >= rate;
}

/* The key of iteration `index` of a loop. */
RT_INLINE uint32_t rt_fold_key(uint32_t key, uint32_t index) { return rt_philox(key, 0x6b657973, index, 0, 1, 0).x[0]; }

#endif
