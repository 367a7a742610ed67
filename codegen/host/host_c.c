/* host_c.c -- the C dialect: kernels are functions of trainer.c, each distinct text once. */
#include "host_parts.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
    FuncText *t;
    const Op *op;
    const Func *callee;     /* NULL: a library op */
    const Product *product; /* NULL: not a product */
} WantedKernel;

static FunctionText kernel_text(const WantedKernel *w, bool anonymous)
{
    Module *m = w->t->h->m;
    ShardOffsets *offsets = &w->t->h->offsets;
    return !w->callee   ? library_kernel_text(m, w->op, offsets)
           : w->product ? naive_product_text(m, w->product, w->op)
                        : row_kernel_text(m, w->callee, w->op, offsets, anonymous);
}

static bool is_kernel(Host *h, const char *name) { return map_get(&h->kernel_names, intern_text(h->m, name)) != NULL; }

/* "k.h.attn.q.2" becomes kernel_h_attn_q_2, with a number if another text has that name. */
static const char *kernel_name(Host *h, const WantedKernel *w)
{
    Arena *arena = &h->m->arena;
    const char *path = w->callee ? kernel_path(w->callee)
                                 : arena_text(arena, "%s.%s", w->op->path ? w->op->path : "", info(w->op)->name);
    const char *base = arena_text(arena, "kernel_%s", c_identifier(h->m, path, 48)), *name = base;
    for (int i = 2; is_kernel(h, name); i++)
        name = arena_text(arena, "%s_%d", base, i);
    return name;
}

/* The name of the C function of a kernel; kernels with equal text, except for names and comment, share one. */
static const char *find_kernel(const WantedKernel *w)
{
    Host *h = w->t->h;
    FunctionText text = kernel_text(w, true);
    if (!text.body)
        return "kernel"; /* after an error */
    Name code = intern_text(h->m, function_code(h->m, &text, "kernel"));
    if (map_get(&h->kernel_codes, code))
        return map_get(&h->kernel_codes, code);
    Name name = intern_text(h->m, kernel_name(h, w));
    h->kernel_codes.arena = h->kernel_names.arena = &h->m->arena;
    map_put(&h->kernel_codes, code, (void *)(uintptr_t)name);
    map_put(&h->kernel_names, name, (void *)(uintptr_t)name);
    text = kernel_text(w, false);
    GROW(&h->m->arena, h->kernel, h->nkernels, h->kernel_room);
    h->kernel[h->nkernels++] = (KernelText){ text.comment, function_code(h->m, &text, name) };
    return name;
}

/* --- Statements ------------------------------------------------------------------------------ */

static int only_op(const Host *h, const Op *const *op, const Op *const **group)
{
    *group = op;
    return 1;
}

static int64_t scratch_bytes_of(Module *m, const Op *op)
{
    const Func *kernel = row_kernel_of(m, op);
    return kernel ? row_kernel_scratch(m, kernel) : info(op)->family == LIBRARY ? library_scratch(m, op) : 0;
}

static Statement kernel_statement(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    const char **operands = operands_of(t, op);
    const char *scratch = scratch_bytes_of(m, op) ? typed_in_frame(t, "float", op->attrs.frame) : NULL;
    const Func *kernel = called_by(m, op);
    const char *name = find_kernel(&(WantedKernel){ .t = t, .op = op, .callee = kernel });
    return kernel_call(m, op, name, operands, scratch);
}

static Statement naive_product_statement(FuncText *t, const Op *op, int number, const Product *product,
                                         const char *const operands[])
{
    WantedKernel wanted = { .t = t, .op = op, .callee = find_func(t->h->m, op->attrs.callee), .product = product };
    return naive_product_call(t->h->m, product, find_kernel(&wanted), op, operands);
}

static const char *no_unfused(FuncText *t, const Op *op, int number, Product *product) { return NULL; }

static char *copy_statement(Module *m, const char *to, const char *from, const char *bytes)
{
    return arena_text(&m->arena, "memcpy(%s, %s, %s);\n", to, from, bytes);
}

static char *zero_statement(Module *m, const char *at, const char *bytes)
{
    return arena_text(&m->arena, "memset(%s, 0, %s);\n", at, bytes);
}

static char *copy_rows_statement(Module *m, const RowsCopy *copy)
{
    return arena_text(&m->arena,
                      "rt_copy(%d, %s, (const int64_t[]){ %" PRId64 ", 1 }, %s, (const int64_t[]){ %" PRId64
                      ", 1 }, 2,\n        (const int64_t[]){ %s, %" PRId64 " });\n",
                      copy->element, copy->to, copy->to_row, copy->from, copy->from_row, copy->rows, copy->row);
}

/* --- The file ---------------------------------------------------------------------------------- */

static void write_kernels(Host *h, FILE *out)
{
    fputs("/* --- Kernels --- */\n\n", out);
    for (int i = 0; i < h->nkernels; i++)
        fprintf(out, "%s%s\n", h->kernel[i].comment, h->kernel[i].code);
}

static const char *probe_field(Host *h) { return "    .probe = &(const struct RtProbeKernels)RT_PROBE_KERNELS,\n"; }

const Dialect c_dialect = {
    .kernels = "loops over tensors; shapes and strides are constants",
    .includes = "\n#include \"kernels/kernels.h\"\n\n#include <string.h>\n",
    .group = only_op,
    .kernel = kernel_statement,
    .naive_product = naive_product_statement,
    .unfused = no_unfused,
    .copy = copy_statement,
    .zero = zero_statement,
    .copy_rows = copy_rows_statement,
    .write_kernels = write_kernels,
    .fields = probe_field,
};

const Target c_target = {
    .name = "c",
    .largest_head = 1024, /* attention holds tiles of whole heads on the stack of a thread */
    .scratch_bytes = scratch_bytes_of,
    .scratch_stays = no_scratch_stays,
    .takes = kernels_accept,
    .packing = no_packing, /* copied as they are exchanged, which a machine's file has in its links */
};
