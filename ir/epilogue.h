/* epilogue.h -- operations on the result of a product before it is stored: C = added + A B + bias, C = activation(A B +
 * bias), or C = A B * slope(before).
 *
 * A bias is a row that is added to all rows: its dims are those of the right operand alone, which are the last dims of
 * the result.  Activations and slopes are the ops that ops.def marks.  find_*() recognise them among the ops of a
 * function; `fuse` decides, and writes {as} into the ops of its kernels; all that comes later reads that.
 */
#ifndef MPC_EPILOGUE_H
#define MPC_EPILOGUE_H

#include "uses.h"

typedef struct {
    const Op *dot;
    const Value *added; /* a running sum or a residual: a parameter of the function, of the result's type; NULL: none */
    const Value *bias;  /* NULL: none */
    const Op *activation; /* of that; NULL: none */
    const Op *slope;      /* of an activation; NULL: none */
    const Value *before;  /* the operand of the activation or of the slope, if there is one */
} Epilogue;

/* Is `result` a sum of products, C = A B + D E + ..., or C += A B + D E + ...?  Returns how many: each is noted as a
 * dot, the first one with what is added.  1: just one, with any epilogue; 0: it is none, or of more than MAX_TERMS.
 * Casts between the ops are included: a product sums in f32 and rounds once. */
enum { MAX_TERMS = 8 };
int find_terms(const Value *result, Epilogue terms[MAX_TERMS]);

/* Records the epilogues of a kernel's results, as find_terms() finds them, in {as} of its ops.  A term that is added to
 * a product, or a slope that multiplies it, becomes the second operand of its op. */
void note_epilogues(const Func *kernel);

/* Read {as} of the ops of a kernel, after `fuse`: all terms of a result, as find_terms(); the only one. */
int terms_of(const Value *result, Epilogue terms[MAX_TERMS]);
Epilogue epilogue_of(const Value *result); /* .dot: NULL: it is none */

/* For the verifier: why {as} of an op of f, or of the ops of a result, is wrong; NULL: it is right. */
const char *wrong_role(const Func *f, const Op *op);
const char *wrong_terms(const Value *result);

/* If the op adds a bias or a residual to a product that nothing else in f reads: the op before it, a dot or the
 * addition of a bias.  NULL: it does not.  uses: those of f. */
const Op *product_before(const Func *f, const Uses *uses, const Op *op);

/* The ops of f after a dot that its product should compute; a residual only if it and the sum are stored anyway. */
typedef struct {
    const Op *sum, *activation;   /* NULL: none */
    const Op *added;              /* adds a residual to the product or to `sum`; NULL: none */
    const Value *residual;        /* that one */
    const Op *slope, *multiplied; /* the slope, and the product with it; NULL: none */
} Tail;

Tail find_tail(const Module *m, const Func *f, const Uses *uses, const Op *dot);

/* If the called kernel consists of sums of its parameters over the same dims, one for each parameter: its first op;
 * else NULL.  The gradients of biases are such sums: products that sum over the same dims (the gradients of the
 * weights) can compute them beside. */
const Op *lone_sums(const Module *m, const Op *call);
const Op *sums_beside(const Module *m, const Op *call); /* the same, of a call with {beside} */
bool sum_over_same_dims(const Op *a, const Op *b);

#endif
