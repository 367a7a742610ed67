/* onednn.h -- the calls of oneDNN that versions 2 and 3 spell differently, so that product.c is the same for both; the
 * processor for which oneDNN makes kernels. */
#ifndef MPC_RUNTIME_CPU_ONEDNN_H
#define MPC_RUNTIME_CPU_ONEDNN_H

#include <dnnl.h>
#include <stdbool.h>

/* A description of memory that belongs to something else: to a memory, or to the description of a primitive. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t RtDnnlLayout;
#else
typedef const dnnl_memory_desc_t *RtDnnlLayout;
#endif

/* Memory without data, for an array of `rank` dims; strides in elements.  The caller destroys it. */
dnnl_status_t rt_dnnl_memory(dnnl_memory_t *memory, dnnl_engine_t engine, int rank, const dnnl_dims_t dims,
                             dnnl_data_type_t type, const dnnl_dims_t strides);

dnnl_status_t rt_dnnl_append_sum(dnnl_post_ops_t after);
dnnl_status_t rt_dnnl_append_eltwise(dnnl_post_ops_t after, dnnl_alg_kind_t function);

/* The product c = a b + bias, of operands that lie as in these memories; bias may be NULL.  Its implementation is
 * the first whose name begins with `kernel`, or the first of all if there is none.  The caller destroys it. */
dnnl_status_t rt_dnnl_matmul(dnnl_primitive_desc_t *matmul, const char *kernel, dnnl_engine_t engine, dnnl_memory_t a,
                             dnnl_memory_t b, dnnl_memory_t bias, dnnl_memory_t c, dnnl_primitive_attr_t attributes);

bool rt_dnnl_uses_avx2(void); /* and not AVX-512 */

#endif
