/* message.h -- what of a tensor goes into the messages to all ranks of a group, or comes out of theirs: of the host,
 * which plans it, and of the device, which copies it (message.cuh). */
#ifndef MPC_CUDA_MESSAGE_H
#define MPC_CUDA_MESSAGE_H

#include <stdint.h>

enum {
    RT_MESSAGE_TENSORS = 16, /* of one launch */
    RT_MESSAGE_THREADS = 256
};

/* The tensor has rows of slots: one for each rank, q's the q-th; or two, q's the q-th from either end.  A message has
 * those of its rank, row by row. */
typedef struct {
    int64_t message;   /* where messages begin, that of rank 0 first: bytes in the workspace */
    int64_t rows, run; /* run: bytes of a slot */
    int32_t ranks, slots;
    int32_t blocks; /* of the launch, which copy it */
    int32_t piece;  /* whose tensor it is */
    int32_t is_received;
} RtMessagePart;

#endif
