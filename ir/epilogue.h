/* epilogue.h -- operations on the result of a product before it is stored: C += A B, or C = activation(A B + bias).
 *
 * A bias has the dims that only the right operand has, and the result has these last: a row, which is added to all
 * rows.  Activations are those that ops.def marks.
 */
#ifndef MPC_EPILOGUE_H
#define MPC_EPILOGUE_H

#include "uses.h"

typedef struct {
    const Op *dot;
    const Value *added;   /* a parameter of the function at hand, like the result; NULL: nothing */
    const Value *bias;    /* NULL: none */
    const Op *activation; /* of that; NULL: none */
    const Value *before;  /* what it is applied to, if there is one */
} Epilogue;

/* Is `result` made by a dot, and by nothing after it but what a product can do?  Casts on the way are its own: it adds
 * up in f32 and rounds once. */
bool find_epilogue(const Value *result, Epilogue *epilogue);

/* The op whose result `op` takes further, on the way back to the dot. */
const Op *op_before(const Epilogue *epilogue, const Op *op);

/* Does the op add a bias to a product that nothing else in f reads?  uses: those of f. */
bool adds_bias(const Func *f, const Uses *uses, const Op *op);

/* The ops of f after a dot that its product should do, too. */
typedef struct {
    const Op *sum, *activation; /* NULL: none */
} Tail;

Tail find_tail(const Module *m, const Func *f, const Uses *uses, const Op *dot);

#endif
