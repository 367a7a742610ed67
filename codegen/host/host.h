/* host.h -- from a planned module to the text of a trainer. */
#ifndef MPC_HOST_H
#define MPC_HOST_H

#include "cuda/cuda.h"

/* Attention has tiles of whole heads on the stack of a thread. */
enum { C_LARGEST_HEAD = 1024 };

/* What a kernel of this back end needs beside its results: Module.scratch_bytes, for the memory pass. */
int64_t c_scratch_bytes(Module *m, const Op *op);

/* Bytes that the runtime sets aside beside the arena for messages.  The module has been through the memory pass. */
int64_t message_space(Module *m, bool on_gpu);

/* The same for products; 0 where only the library knows. */
int64_t product_space(bool on_gpu);

typedef struct {
    const char *plan;        /* plan.json, which the trainer can print */
    const char *version;     /* of mpc */
    const char *comm;        /* what carries messages between ranks: "mpi", "tcp" */
    const CudaProgram *cuda; /* the kernels of a trainer for GPUs; NULL: a trainer for processors */
} TrainerTexts;

/* Writes trainer.c: kernels, the program's functions, its tables, main.  The module has been through the memory
 * pass.  False after an error. */
bool emit_trainer(Module *m, TrainerTexts texts, FILE *out);

#endif
