/* interp.h -- the reference interpreter: slow and simple evaluation of a program.
 *
 * It runs a function on all virtual ranks of the mesh at once, collectives included, in double precision (f32, bf16 and
 * f16 do not round; i32 and bool are exact).  It shares no code with what it checks: neither the C texts of ops.def nor
 * the kernels of the runtime.
 *
 * A Tensor is the value of the whole tensor, row-major over the logical sizes of its type's dims, without padding,
 * independent of splits in the type.  Its data is malloc'ed.
 */
#ifndef MPC_INTERP_H
#define MPC_INTERP_H

#include "ir.h"

typedef struct {
    Type type;
    double *data;
} Tensor;

/* A value, just computed. */
typedef struct {
    const Func *func;
    const Op *op;
    int result;     /* which of the op's */
    Name iteration; /* of the enclosing loops, outermost first: "h[3]."; "" outside of loops */
    Tensor value;   /* lives until the observer returns */
} Observation;

typedef struct {
    void (*see)(void *context, const Observation *seen);
    void *context;
} Observer;

/* Runs `f`: args[i] is a whole tensor and is split into shards according to the type of f's i-th parameter (a partial
 * one into terms that differ between ranks); results[i] is assembled from all ranks, with pending sums and maxima
 * reduced.  Replicated shards must be equal on all ranks (1e-12, relative), for every value of every op.  False, with
 * results[] unset, after reporting to m->diags the op that could not be run, the value outside its dtype, or the
 * replicated shard that differs.  The program must have passed verify_module.  The caller frees results[] with
 * free_tensors(). */
bool interpret(Module *m, const Func *f, const Tensor args[], Tensor results[]);

/* Random relative errors, as if by rounding to few digits; by = 0: none.  They show how much rounding is magnified. */
typedef struct {
    double by;
    uint64_t seed;
} Shaking;

/* Forward mode: derivatives along one direction, computed together with the values, op by op, by rules independent of
 * the gradients that autodiff builds.  At kinks, the conventions are the same: several largest elements have equal
 * weight, and relu and abs have slope 0 at 0.  Only for programs before sharding, with reals. */
typedef struct {
    const Tensor *args; /* the tangent of each parameter; data NULL: zero */
    Tensor *results;    /* the tangent of each result; data NULL: zero.  Freed like results */
    Shaking shaking;    /* of every derivative */
} Tangents;

typedef struct {
    const Observer *observer; /* called for every value in order of computation; NULL: none */
    bool exact;               /* floats are residues modulo a prime, in args and results too: see make_exact */
    bool rounds;              /* round_bf16 and round_f16 round; else they are the identity */
    const Tangents *tangents; /* NULL: values alone */
    Shaking shaking;          /* of every computed float */
    Name *outside;            /* receives the dim that an index is outside of; NULL: not wanted */
    bool placed;              /* f has been through the memory pass: run in its storage, see below */
} RunOptions;

/* The same, with options.  `placed`: every value is written to its storage in a rank's arena and read from there, as in
 * the generated program: frames of called functions, pointers, slices, alternating buffers of loops, state in place,
 * scratch.  The micro-batches of a pipeline are then run as their schedule has them, action by action, with its
 * messages and slots: see interp_schedule.c.  False if an op would read something other than the computed value,
 * reporting the value and what has overwritten it, or if an op overwrites an operand that it still reads. */
bool interpret_with(Module *m, const Func *f, const Tensor args[], Tensor results[], const RunOptions *options);

Tensor new_tensor(const Type *type); /* zeros */
void free_tensors(Tensor tensors[], int count);

/* Elements from [low, high): uniform for floats, integers for i32, 0 or 1 for bool.  They depend only on `name` and the
 * element's index, so two programs get the same values for the same name. */
Tensor random_tensor(const char *name, const Type *type, double low, double high);

double root_mean_square(const Tensor *tensor); /* 0 where an element is not finite */

/* Converts real numbers to residues for exact runs; integers are unchanged. */
void make_exact(Tensor *tensor);

/* Where two tensors differ most, as the largest |a - b| relative to the largest of |a|, |b|, the root mean square of a
 * (so that noise around a zero is no difference) and `noise` (so that noise around a tensor of zeros is none).  The
 * dims may be in another order; dtypes are ignored.  Infinite where the dims differ or only one is NaN. */
typedef struct {
    double by;
    int64_t at; /* index in a; -1 if the dims differ */
    double a, b;
} Difference;
Difference tensor_difference(const Tensor *a, const Tensor *b, double noise);

/* Philox4x32-10 (Salmon et al., 2011), as dropout and fold_key draw from it. */
void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
