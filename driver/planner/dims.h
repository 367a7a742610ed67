/* dims.h -- the uses of a model's dims, for derive.c: which of them products with weights make and sum over, which
 * an op needs whole, and what they are for: a sequence, experts, the rows of a table. */
#ifndef MPC_PLANNER_DIMS_H
#define MPC_PLANNER_DIMS_H

#include "ir.h"
#include "syntax/ast.h"

/* A dim that the file declares, by its name in the program. */
typedef struct {
    Name name;
    int64_t size;    /* in memory */
    int same;        /* the first dim that has the same elements, by a rename or a fold; itself: none has */
    double rows;     /* elements of the tables whose rows, numbered along it, data choose */
    double residual; /* elements of all that repeats carry with it, of all copies; 0: none carries it */
    bool whole;      /* some op needs all of it */
    bool scanned;    /* place by place */
    bool attended;   /* queries are along it */
    bool fed;        /* an input has it */
    bool experts;    /* rows are dispatched along it */
    bool reduced;    /* by an op that is no product, as a norm does */
} DimUse;

/* A product of a weight and of what is computed from data.  Sets have a dim's number in DimUses as their bits. */
typedef uint64_t DimSet;
typedef struct Product {
    DimSet dims;   /* of the weight */
    DimSet made;   /* of these: the result has them from the weight alone */
    DimSet summed; /* over these the product sums */
    double flops;  /* in all copies of the repeats around it */
    struct Product *next;
} Product;

enum { MAX_DIM_USES = 64 }; /* a set has a bit for each; further ones are not looked at */

typedef struct {
    int count;
    DimUse at[MAX_DIM_USES];
    Product *products;
    double parameters; /* elements of all */
} DimUses;

/* Of a model as it was lowered on one rank. */
DimUses *find_dim_uses(Arena *arena, const Ast *file, Module *m);
int dim_number(const DimUses *uses, Name name); /* -1: none that is declared */

#endif
