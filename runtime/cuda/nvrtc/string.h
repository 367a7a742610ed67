/* string.h -- for NVRTC, which knows memcpy and memset by itself. */
