/* cuda_product.c -- products with an operand order that cuBLASLt does not support: one thread per element. */
#include "cuda_library.h"
#include "cuda_row.h"
#include "templates.h"
#include "text/names.h"

#include <inttypes.h>

enum { THREADS = 256 };

/* "const int64_t head = item % 12;" and "item /= 12;", from the innermost dim out. */
static char *index_texts(Module *m, const Type *type, int64_t *count)
{
    char *text = "";
    *count = 1;
    for (int i = type->rank - 1; i >= 0; i--) {
        int64_t size = loop_size(m, &type->dim[i]);
        text = arena_text(&m->arena, "%sconst int64_t %s = item %% %" PRId64 ";\nitem /= %" PRId64 ";\n", text,
                          index_name(m, type->dim[i].name), size, size);
        *count *= size;
    }
    return text;
}

const char *emit_cuda_product(Module *m, const Product *p, const Op *call, const char *name, CudaLaunches *launches,
                              FILE *out)
{
    const Value *c = call->results.at[p->c];
    int64_t count;
    const char *parameters[MAX_PRODUCT_OPERANDS], *threads = arena_text(&m->arena, "%d", THREADS);
    int noperands = product_parameters(m, p, call, "", parameters);
    const char *indices = index_texts(m, &c->type, &count);
    FILL(out, cuda_product_template, { "head", kernel_head(m, name, threads, noperands, parameters) },
         { "threads", threads }, { "count", arena_text(&m->arena, "%" PRId64, count) }, { "indices", indices },
         { "body", naive_product_point(m, p, call) });
    launches->count = 0;
    int64_t bytes = p->shape.accumulate ? value_bytes(m, c) : 0;
    const char *names[MAX_PRODUCT_OPERANDS];
    int at[MAX_PRODUCT_OPERANDS];
    for (int i = product_operands(p, call, names, at) - 1; i >= 0; i--)
        bytes += value_bytes(m, arg_or_result(call, at[i]));
    add_launch(
        launches,
        (CudaLaunch){ .name = name, .blocks = (count + THREADS - 1) / THREADS, .threads = THREADS, .bytes = bytes }, m);
    return arena_text(&m->arena, "/* A product that cuBLASLt does not take in this layout, at %s */\n",
                      comment_text(m, call->where ? call->where : ""));
}
