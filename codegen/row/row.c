/* row.c -- row kernels in C: pointwise ops, reductions along rows, sums over rows. */
#include "row.h"

const Func *row_kernel_of(const Module *m, const Op *op)
{
    const Func *kernel = op->kind == OP_call ? find_func(m, op->attrs.callee) : NULL;
    return kernel && kernel->role == KERNEL && !is_product_kernel(kernel) ? kernel : NULL;
}

/* Marks unused parameters, which are still passed. */
static void write_unread(const RowKernel *k, FILE *out)
{
    for (int i = 0; i < k->f->params.count; i++)
        if (!k->node[i].is_wanted)
            FILL(out, "(void)$name;\n", { "name", k->array[i].name });
}

RowKernel *plan_for_c(Module *m, const Func *kernel, const Op *call, bool anonymous)
{
    RowKernel *k = plan_row_kernel(m, kernel, call);
    k->is_anonymous = anonymous;
    plan_columns(k);
    plan_arrays(k);
    name_values(k);
    for (int i = 0; i < k->nregions; i++)
        plan_loops(k, &k->region[i]);
    plan_kept(k);
    return k;
}

FunctionText row_kernel_text(Module *m, const Func *kernel, const Op *call, ShardOffsets *offsets, bool anonymous)
{
    RowKernel *k = plan_for_c(m, kernel, call, anonymous);
    k->offsets = offsets;
    k->depth = 1;
    Text body;
    open_text(&body);
    Step *scalars = NULL;
    mark_wanted(k, NULL);
    write_unread(k, body.out);
    add_scalars(&(Steps){ .k = k, .end = &scalars });
    print_steps(k, &(Region){ 0 }, scalars, body.out);
    for (int i = 0; i < k->nregions; i++) {
        Step *steps = NULL;
        add_region(&(Steps){ .k = k, .end = &steps }, k->region_order[i]);
        print_steps(k, &k->region[k->region_order[i]], steps, body.out);
    }
    FunctionText text = { .comment = anonymous ? NULL : row_comment(k), .body = close_text(&m->arena, &body) };
    text.parameter = row_parameters(k, "restrict", &text.nparameters);
    return text;
}

Statement kernel_call(Module *m, const Op *op, const char *name, const char *const operand[], const char *scratch)
{
    int count = op->args.count + op->results.count;
    const char **items = NEW_ARRAY(&m->arena, const char *, count + 1);
    for (int i = 0; i < count; i++)
        items[i] = operand[i];
    if (scratch)
        items[count++] = scratch;
    return (Statement){ .function = name, .count = count, .operand = items };
}
