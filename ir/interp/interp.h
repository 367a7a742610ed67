/* interp.h -- the reference interpreter: slow and simple evaluation of a program.
 *
 * It runs a function on all virtual ranks of the mesh at once, collectives included, in double
 * precision (f32, bf16 and f16 do not round; i32 and bool are exact).  It shares nothing with what
 * it checks: neither the C texts of ops.def nor the kernels of the runtime.
 *
 * A Tensor is the value of the whole tensor, row-major over the logical sizes of its type's dims, without padding,
 * however the type splits it.  Its data is malloc'ed.
 */
#ifndef MPC_INTERP_H
#define MPC_INTERP_H

#include "ir.h"

typedef struct {
    Type type;
    double *data;
} Tensor;

/* A value at the moment in which it was computed. */
typedef struct {
    const Func *func;
    const Op *op;
    int result;     /* which of the op's */
    Name iteration; /* of the loops around it, from the outside: "h[3]."; "" outside of any */
    Tensor value;   /* lives until the observer returns */
} Seen;

typedef struct {
    void (*see)(void *context, const Seen *seen);
    void *context;
} Observer;

/* Runs `f`: args[i] is whole and becomes each rank's part as f's i-th parameter's type says (a
 * partial one becomes terms that differ from rank to rank); results[i] is put together from all
 * ranks: splits side by side, pending sums and maxima taken.  What the type calls copies must be
 * equal on all ranks (1e-12, relative), for every value of every op.
 * False, with nothing in results[], after reporting to m->diags which op could not be run, which
 * value is none of its dtype, or which copy differs.  The program must have passed verify_module.
 * results[i].data is the caller's, to be freed with free_tensors(). */
bool interpret(Module *m, const Func *f, const Tensor args[], Tensor results[]);

/* Forward mode: derivatives along one direction, computed beside the values, op by op, from rules that share nothing
 * with the gradients that autodiff builds.  Its conventions at kinks are theirs: where several elements are the largest
 * each counts alike, and relu and abs are flat at 0.  Of programs before they are sharded, with reals. */
typedef struct {
    const Tensor *args; /* of each parameter, where it moves to; data NULL: it stays */
    Tensor *results;    /* of each result, by how much it moves; data NULL: it stays.  To be freed as results are */
    double shake;       /* every derivative is off by up to this, relatively, as if by rounding; 0 if not */
    uint64_t seed;      /* ... at random */
} Tangents;

typedef struct {
    const Observer *observer; /* is told every value in the order of computation; NULL: nobody */
    bool exact;               /* floats are residues modulo a prime, in args and results too: see make_exact */
    bool rounds;              /* round_bf16 and round_f16 round; else they are the identity */
    const Tangents *tangents; /* NULL: values alone */
    bool placed;              /* f has been through the memory pass: the run goes through its places, see below */
} RunOptions;

/* The same, otherwise.  `placed`: every value is written to its place in a rank's arena and read from there again, as
 * the generated program does: frames of called functions, pointers, slices, buffers that loops alternate between, state
 * in place, scratch.  False where what an op would read is not what has been computed, naming both the value and what
 * has been written over it, and where an op writes what it is still reading. */
bool interpret_with(Module *m, const Func *f, const Tensor args[], Tensor results[], const RunOptions *options);

Tensor new_tensor(const Type *type); /* zeros */
void free_tensors(Tensor tensors[], int count);

/* Elements from [low, high): uniform for floats, integers for i32, 0 or 1 for bool.  They depend on
 * `name` and the element's index only, so two programs get the same values for the same name. */
Tensor random_tensor(const char *name, const Type *type, double low, double high);

double root_mean_square(const Tensor *tensor); /* 0 where an element is not finite */

/* Real numbers become the residues that stand for them in exact runs; integers stay. */
void make_exact(Tensor *tensor);

/* Where two tensors differ most, as the largest |a - b| relative to the largest of |a|, |b|, the root mean square of a
 * (so that noise around a zero is no difference) and `noise` (so that noise around a tensor of zeros is none).  The
 * dims may stand in another order; dtypes do not matter.  Infinite where the dims differ or only one is NaN. */
typedef struct {
    double by;
    int64_t at; /* index in a; -1 if the dims differ */
    double a, b;
} Difference;
Difference tensor_difference(const Tensor *a, const Tensor *b, double noise);

/* Philox4x32-10 (Salmon et al., 2011), as dropout and fold_key draw from it. */
void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
