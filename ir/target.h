/* target.h -- the device that a program is compiled for, as far as passes and the front end ask.
 *
 * A back end defines its own: c_target in codegen/host/host.h, cuda_target in codegen/cuda/cuda.h. */
#ifndef MPC_TARGET_H
#define MPC_TARGET_H

#include "ir.h"

/* What is copied into a message, or out of it, since messages must be dense: a tensor in rows, each with a part for
 * every rank, unless it is one row.  Long rows may be messages of their own. */
typedef struct {
    int64_t rows; /* 0: nothing is copied */
    int64_t row_bytes;
    int64_t long_row; /* bytes from which rows are not copied; 0: all are */
} Packing;

typedef struct Target {
    const char *name;     /* of --target */
    bool is_gpu;          /* has memory of its own, beside that of the host */
    int64_t largest_head; /* the largest head that its attention supports; 0: any */

    /* --- What its kernels need ------------------------------------------------------------------------------ */
    int64_t (*scratch_bytes)(Module *, const Op *); /* beside the results of the op */
    int (*scratch_stays)(Module *, const Op *);     /* for how many later ops that stays in use */
    /* Does the target accept these layouts of a kernel or LIBRARY op?  Else it sets others. */
    bool (*takes)(Module *, const Op *, RequiredLayout wanted[]);

    /* --- What its messages do ------------------------------------------------------------------------------- */
    void (*packing)(Module *, const Op *, Packing side[2]); /* of a collective: sent, and received */

    /* --- What its kernels keep ------------------------------------------------------------------------------ */
    int64_t
        kept_row; /* bytes of a row that kernels keep while they pass over it; longer ones they read again; 0: any */

    /* --- What its products do ------------------------------------------------------------------------------- */
    unsigned keeps_before; /* traits: activations whose operand products write, slopes that they multiply by */
    bool adds_residuals;
    bool rounds_operands; /* to 8 bits: see passes/kernel/unrounded.c */
    bool fills_padding;   /* products want sizes in memory, see full dims */
} Target;

double bytes_of_packing(double rows, double row_bytes, int64_t long_row);
double packed_bytes(const Packing side[2]);

/* Of a target whose ops need, or copy, nothing. */
int64_t no_bytes(Module *m, const Op *op);
void no_packing(Module *m, const Op *op, Packing side[2]);

/* Of a target that runs one op after the other: no scratch stays in use. */
int no_scratch_stays(Module *m, const Op *op);

/* Of a module that no back end reads: no kernel needs anything. */
extern const Target no_target;

#endif
