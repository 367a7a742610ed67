/* onednn.c -- the calls of oneDNN that versions 2 and 3 spell differently.
 *
 * In version 2 a description of memory is a structure, and an operation is described before a primitive of it; in
 * version 3 descriptions of memory are objects, and primitives are described directly.  Both give the description of an
 * existing memory, so that callers pass memories. */
#include "onednn.h"

#include <stddef.h>
#include <string.h>

static RtDnnlLayout layout_of(dnnl_memory_t memory)
{
    RtDnnlLayout layout = NULL;
    if (memory)
        dnnl_memory_get_memory_desc(memory, &layout); /* fails for NULL only */
    return layout;
}

static bool is_named(dnnl_primitive_desc_t primitive, const char *beginning)
{
    const char *name = "";
    return dnnl_primitive_desc_query(primitive, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           strncmp(name, beginning, strlen(beginning)) == 0;
}

bool rt_dnnl_uses_avx2(void)
{
    const int isa = (int)dnnl_get_effective_cpu_isa(), avx2 = dnnl_cpu_isa_avx2, avx512 = dnnl_cpu_isa_avx512_core;
    return (isa & avx2) == avx2 && (isa & avx512) != avx512;
}

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t rt_dnnl_memory(dnnl_memory_t *memory, dnnl_engine_t engine, int rank, const dnnl_dims_t dims,
                             dnnl_data_type_t type, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t layout;
    dnnl_status_t status = dnnl_memory_desc_create_with_strides(&layout, rank, dims, type, strides);
    if (status != dnnl_success)
        return status;
    status = dnnl_memory_create(memory, layout, engine, DNNL_MEMORY_NONE);
    dnnl_memory_desc_destroy(layout);
    return status;
}

dnnl_status_t rt_dnnl_append_sum(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_sum(after, 1.0f, 0, dnnl_data_type_undef);
}

dnnl_status_t rt_dnnl_append_eltwise(dnnl_post_ops_t after, dnnl_alg_kind_t function)
{
    return dnnl_post_ops_append_eltwise(after, function, 0.0f, 0.0f);
}

static dnnl_status_t first_matmul(dnnl_primitive_desc_t *matmul, dnnl_engine_t engine, dnnl_memory_t a, dnnl_memory_t b,
                                  dnnl_memory_t bias, dnnl_memory_t c, dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(matmul, engine, layout_of(a), layout_of(b), layout_of(bias), layout_of(c),
                                             attributes);
}

dnnl_status_t rt_dnnl_matmul(dnnl_primitive_desc_t *matmul, const char *kernel, dnnl_engine_t engine, dnnl_memory_t a,
                             dnnl_memory_t b, dnnl_memory_t bias, dnnl_memory_t c, dnnl_primitive_attr_t attributes)
{
    dnnl_status_t status = first_matmul(matmul, engine, a, b, bias, c, attributes);
    if (status != dnnl_success || is_named(*matmul, kernel))
        return status;
    while (dnnl_primitive_desc_next_impl(*matmul) == dnnl_success)
        if (is_named(*matmul, kernel))
            return dnnl_success;
    dnnl_primitive_desc_destroy(*matmul);
    return first_matmul(matmul, engine, a, b, bias, c, attributes);
}

#else

dnnl_status_t rt_dnnl_memory(dnnl_memory_t *memory, dnnl_engine_t engine, int rank, const dnnl_dims_t dims,
                             dnnl_data_type_t type, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t layout;
    const dnnl_status_t status = dnnl_memory_desc_init_by_strides(&layout, rank, dims, type, strides);
    return status == dnnl_success ? dnnl_memory_create(memory, &layout, engine, DNNL_MEMORY_NONE) : status;
}

dnnl_status_t rt_dnnl_append_sum(dnnl_post_ops_t after) { return dnnl_post_ops_append_sum(after, 1.0f); }

dnnl_status_t rt_dnnl_append_eltwise(dnnl_post_ops_t after, dnnl_alg_kind_t function)
{
    return dnnl_post_ops_append_eltwise(after, 1.0f, function, 0.0f, 0.0f);
}

dnnl_status_t rt_dnnl_matmul(dnnl_primitive_desc_t *matmul, const char *kernel, dnnl_engine_t engine, dnnl_memory_t a,
                             dnnl_memory_t b, dnnl_memory_t bias, dnnl_memory_t c, dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t product;
    dnnl_primitive_desc_iterator_t list;
    dnnl_status_t status = dnnl_matmul_desc_init(&product, layout_of(a), layout_of(b), layout_of(bias), layout_of(c));
    if (status == dnnl_success)
        status = dnnl_primitive_desc_iterator_create(&list, &product, attributes, engine, NULL);
    if (status != dnnl_success)
        return status;
    *matmul = dnnl_primitive_desc_iterator_fetch(list);
    for (bool found = is_named(*matmul, kernel); !found && dnnl_primitive_desc_iterator_next(list) == dnnl_success;) {
        dnnl_primitive_desc_t next = dnnl_primitive_desc_iterator_fetch(list);
        found = is_named(next, kernel);
        if (found) {
            dnnl_primitive_desc_destroy(*matmul);
            *matmul = next;
        } else {
            dnnl_primitive_desc_destroy(next);
        }
    }
    return dnnl_primitive_desc_iterator_destroy(list);
}

#endif
