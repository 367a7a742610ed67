/* product.h -- products of the processor: product.c, counted.c and peak.c among themselves. */
#ifndef MPC_RUNTIME_CPU_PRODUCT_H
#define MPC_RUNTIME_CPU_PRODUCT_H

#include "rt.h"

bool rt_multiplies_bf16(void); /* directly */

/* A product that is not counted, outside of the table of the program's. */
typedef struct RtOneProduct RtOneProduct;
RtOneProduct *rt_one_product(Rt *rt, RtProductShape shape);
void rt_one_product_run(Rt *rt, const RtOneProduct *p, const void *a, const void *b, const void *bias, void *c);
void rt_one_product_free(RtOneProduct *p);

/* One whose shape is `counted`: counted.c. */
typedef struct RtCountedProduct RtCountedProduct;
RtCountedProduct *rt_counted_product(Rt *rt, RtProductShape shape);
void rt_counted_product_run(Rt *rt, const RtCountedProduct *p, const void *a, const void *b, void *c);
void rt_counted_product_free(RtCountedProduct *p);

#endif
