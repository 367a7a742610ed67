/* stdbool.h -- for NVRTC: C++ has bool. */
