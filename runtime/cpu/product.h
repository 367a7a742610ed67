/* product.h -- products of the processor: product.c, product_kernel.c, counted.c and peak.c among themselves. */
#ifndef MPC_RUNTIME_CPU_PRODUCT_H
#define MPC_RUNTIME_CPU_PRODUCT_H

#include "rt.h"

bool rt_multiplies_bf16(void); /* directly */

/* The beginning of the name of the implementation of oneDNN's that is fastest on this processor, for products that
 * multiply this type, f32 or bf16, and whose A lies by columns or not; "": its first. */
const char *rt_product_kernel(RtType multiplied, bool is_transposed);

/* Is a bf16 product much slower if there are gaps between the rows of its result? */
bool rt_product_needs_no_gaps(void);

/* Of f32 by "gemm" for AVX2: is a product of m rows faster, by more than a copy of B takes, if B's rows have gaps? row:
 * from one to the next, in elements. */
bool rt_product_is_faster_spaced(int64_t m, int64_t row);

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
