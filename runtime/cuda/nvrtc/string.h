/* string.h -- for NVRTC, which has memcpy and memset built in. */
