/* hopper.h -- shared by the attention kernel for Hopper (attend_hopper.cuh) and the host, which makes its tensor maps:
 * the boxes that it copies. */
#ifndef MPC_CUDA_HOPPER_H
#define MPC_CUDA_HOPPER_H

/* Features, and rows of queries. */
#define RT_HOPPER_BOX 64
#define RT_HOPPER_ROWS 64

/* Rows of keys and of values, by the features of a head. */
#define RT_HOPPER_KEYS(feature) ((feature) <= 128 ? 128 : 64)

#endif
