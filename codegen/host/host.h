/* host.h -- from a planned module to the text of a trainer. */
#ifndef MPC_HOST_H
#define MPC_HOST_H

#include "cuda/cuda.h"

extern const Target c_target;

/* Bytes that the runtime allocates besides the arena for messages, on ranks of each kind.  The module has been through
 * the memory pass. */
void message_space(Module *m, int kinds, int64_t bytes[]);

/* The same for products; 0 if only the library knows. */
int64_t product_space(const Module *m);

/* And for transfers from and to other tiers of memory. */
int64_t transfer_space(const Module *m);

typedef struct {
    const char *plan;        /* plan.json, which the trainer can print */
    const char *version;     /* of mpc */
    const char *comm;        /* the message transport: "mpi", "tcp" */
    const CudaProgram *cuda; /* the kernels of a trainer for GPUs; NULL: a trainer for processors */
} TrainerTexts;

/* A trainer for processors as translation units, which a compiler takes side by side, and each anew only after it
 * changed: functions, kernels, tables.  Lines are numbered as in trainer.c. */
typedef struct {
    int count; /* 0: it is a trainer for GPUs, which is one unit */
    const char **text;
} Units;

/* Writes trainer.c: kernels, the program's functions, its tables, main.  The module has been through the memory
 * pass.  `units`: the same text in units, in the module's arena; NULL: not wanted.  False after an error. */
bool emit_trainer(Module *m, TrainerTexts texts, FILE *out, Units *units);

#endif
