/* epilogue.h -- what a product does with its result before it is written: C += A B. */
#ifndef MPC_EPILOGUE_H
#define MPC_EPILOGUE_H

#include "ir.h"

typedef struct {
    const Op *dot;
    const Value *added; /* a parameter of the function at hand, like the result; NULL: nothing */
} Epilogue;

/* Is `result` made by a dot, and by nothing after it but what a product can do?  Casts on the way are its own: it adds
 * up in f32 and rounds once. */
bool find_epilogue(const Value *result, Epilogue *epilogue);

/* The op whose result `op` takes further, on the way back to the dot. */
const Op *op_before(const Epilogue *epilogue, const Op *op);

#endif
