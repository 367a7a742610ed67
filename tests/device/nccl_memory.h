/* nccl_memory.h -- the memory of the GPU that a communicator takes: EMULATED_NCCL_BYTES for each rank that it connects.
 * Collectives connect all ranks: as it is formed if NCCL_RUNTIME_CONNECT is 0, else at the first one.  A message
 * connects the two of it, at the first one. */
#ifndef MPC_TESTS_NCCL_MEMORY_H
#define MPC_TESTS_NCCL_MEMORY_H

#include "device.h"

#include <nccl.h>

enum { MAX_RANKS = 64, ALL_OF_THEM = -1 };

typedef struct {
    int64_t bytes;
    bool has_ring, has[MAX_RANKS];
} Connections;

/* Connects a rank, or all. */
static ncclResult_t connect(Connections *c, int ranks, int rank)
{
    bool *is_there = rank == ALL_OF_THEM ? &c->has_ring : &c->has[rank];
    const int64_t bytes = emulated_number("EMULATED_NCCL_BYTES", 0) * (rank == ALL_OF_THEM ? ranks : 1);
    if (*is_there)
        return ncclSuccess;
    if (!emulated_take(bytes))
        return ncclUnhandledCudaError;
    *is_there = true;
    c->bytes += bytes;
    return ncclSuccess;
}

static void disconnect(Connections *c)
{
    emulated_take(-c->bytes);
    *c = (Connections){ 0 };
}

#endif
