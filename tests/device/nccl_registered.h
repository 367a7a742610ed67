/* nccl_registered.h -- memory that NCCL has allocated, and that a communicator reads and writes in place. */
#ifndef MPC_TESTS_NCCL_REGISTERED_H
#define MPC_TESTS_NCCL_REGISTERED_H

#include "device.h"

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    const char *at; /* NULL: none */
    size_t bytes;
} Registered;

static void *allocated; /* by the last ncclMemAlloc */

ncclResult_t ncclMemAlloc(void **at, size_t bytes)
{
    const cudaError_t status = cudaMalloc(at, bytes);
    allocated = status == cudaSuccess ? *at : NULL;
    return status == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *at) { return cudaFree(at) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }

/* Also adds a line to $EMULATED_REGISTERED. */
static ncclResult_t register_memory(Registered *r, void *at, size_t bytes, int rank, int ranks)
{
    FILE *out = getenv("EMULATED_REGISTERED") ? fopen(getenv("EMULATED_REGISTERED"), "a") : NULL;
    if (at != allocated)
        emulated_fault("memory is registered that NCCL has not allocated");
    if (out && (fprintf(out, "%d of %d\n", rank, ranks) < 0 || fclose(out) != 0))
        emulated_fault("$EMULATED_REGISTERED cannot be written");
    *r = (Registered){ at, bytes };
    return ncclInProgress;
}

static ncclResult_t release_memory(Registered *r, const void *at)
{
    if (r->at != at)
        emulated_fault("memory is released that is not registered");
    *r = (Registered){ 0 };
    return ncclInProgress;
}

/* -1: it is in no registered memory. */
static int64_t offset_in(const Registered *r, const char *at)
{
    return r->at && at >= r->at && at < r->at + r->bytes ? at - r->at : -1;
}

#endif
