/* product.h -- the plan of one dot: product.c plans it where its values lie, product_order.c also where copies of
 * them would. */
#ifndef MPC_PRODUCT_H
#define MPC_PRODUCT_H

#include "codegen.h"

/* What a dot reads and writes. */
typedef struct {
    const Value *a, *b, *c, *bias; /* bias: NULL: none */
} ProductValues;

/* Each dot of the kernel as a product of its own, as plan_products, but that each of those which are added up in one
 * result is the only one.  Returns their number; 0 after an error. */
int plan_each_product(Module *m, const Func *kernel, const Op *call, Product **products);

/* Sets p's shape and loops, or that it is naive. */
void shape_product(Module *m, Product *p, const ProductValues *values);

/* Can a running sum be updated in the result: in place, or after a bytewise copy? */
bool sums_in_result(const Module *m, const Value *added, const Value *c);

#endif
