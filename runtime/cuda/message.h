/* message.h -- the parts of a tensor in messages to or from all ranks of a group; shared by the host, which plans them,
 * and the device, which copies them (message.cuh). */
#ifndef MPC_CUDA_MESSAGE_H
#define MPC_CUDA_MESSAGE_H

#include <stdint.h>

enum {
    RT_MESSAGE_TENSORS = 16, /* of one launch */
    RT_MESSAGE_THREADS = 256
};

/* The tensor has rows of slots: one for each rank, the q-th for rank q; or two, the q-th from either end.  A message
 * has the slots of its rank, row by row. */
typedef struct {
    int64_t message;   /* offset of the messages in the workspace, that of rank 0 first */
    int64_t rows, run; /* run: bytes of a slot */
    int32_t ranks, slots;
    int32_t blocks; /* number of blocks that copy it */
    int32_t piece;  /* index of its tensor */
    int32_t is_received;
} RtMessagePart;

/* How often a collective has begun and is done, modulo 256. */
typedef struct {
    unsigned char begun, done;
} RtGpuProgress;

#endif
