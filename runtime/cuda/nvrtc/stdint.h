/* stdint.h -- for NVRTC, which has no C library headers; only on the include path of kernels. */
#ifndef MPC_CUDA_STDINT_H
#define MPC_CUDA_STDINT_H

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807ll
#define INT64_C(x) x##ll

#endif
