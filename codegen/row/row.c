/* row.c -- row kernels in C: pointwise ops, reductions along rows, sums over rows. */
#include "row.h"
#include "templates.h"

#include <inttypes.h>
#include <string.h>

const Func *row_kernel_of(const Module *m, const Op *op)
{
    const Func *kernel = op->kind == OP_call ? find_func(m, op->attrs.callee) : NULL;
    return kernel && kernel->role == KERNEL && !is_product_kernel(kernel) ? kernel : NULL;
}

bool is_parallel(const Region *region) { return region->points >= SERIAL_POINTS; }

char *row_loop(const RowKernel *k, const char *pragma, const Loop *loop, const char *low, const char *high,
               const char *body)
{
    return loop_text(k->m, pragma, loop->index->name, low ? low : "0",
                     high ? high : arena_text(&k->m->arena, "%" PRId64, loop->size), body);
}

/* --- Loops over rows ------------------------------------------------------------------------------- */

static void write_rows(RowKernel *k, int region, FILE *out)
{
    Region *r = &k->region[region];
    Text row;
    open_text(&row);
    k->depth += r->nouter;
    write_row(k, region, NULL, NULL, row.out);
    k->depth -= r->nouter;
    char *text = close_text(&k->m->arena, &row), *pragma = "#pragma omp parallel for";
    if (r->nouter > 1)
        pragma = arena_text(&k->m->arena, "%s collapse(%d)", pragma, r->nouter);
    for (int i = r->nouter - 1; i >= 0; i--)
        text = row_loop(k, i == 0 && is_parallel(r) ? pragma : "", &r->loop[i], NULL, NULL, text);
    fputs(text, out);
}

/* One loop over everything, in blocks independent of the number of threads: the last elements of a vectorised loop may
 * be rounded differently. */
static void write_flat(RowKernel *k, int region, FILE *out)
{
    Region *r = &k->region[region];
    Text body;
    open_text(&body);
    k->depth++;
    write_row(k, region, "begin", "end", body.out);
    k->depth--;
    FILL(out, flat_blocks_template, { "count", arena_text(&k->m->arena, "%" PRId64, r->loop[0].size) },
         { "step", arena_text(&k->m->arena, "%d", FLAT_BLOCK) }, { "body", close_text(&k->m->arena, &body) });
}

static void write_region(RowKernel *k, int region, FILE *out)
{
    const Region *r = &k->region[region];
    if (r->has_columns)
        write_columns(k, region, out);
    else if (r->nloops == 1 && r->nouter == 0 && !k->by_rows && is_parallel(r))
        write_flat(k, region, out);
    else
        write_rows(k, region, out);
}

/* --- The function ---------------------------------------------------------------------------------- */

/* "h.ln_1, gpt2.mdl:24:9: sub, square, sum": origin and ops. */
static char *row_title(const RowKernel *k)
{
    enum { WIDTH = 110 };
    const Op *call = k->call;
    const char *place = arena_text(&k->m->arena, "%s%s%s:", call->path ? call->path : k->f->name,
                                   call->where ? ", " : "", call->where ? call->where : "");
    char *text = arena_text(&k->m->arena, "%s", comment_text(k->m, place));
    size_t line = 0;
    bool seen[N_OPS] = { false }, any = false;
    for (const Op *op = k->f->first; op; op = op->next) {
        if (seen[op->kind] || is_constant(op))
            continue;
        bool full = strlen(text) - line + strlen(info(op)->name) > WIDTH;
        line = full ? strlen(text) : line;
        text = arena_text(&k->m->arena, "%s%s%s%s", text, any ? "," : "", full ? "\n * " : " ", info(op)->name);
        seen[op->kind] = any = true;
    }
    return text;
}

char *row_comment(const RowKernel *k)
{
    Text text;
    open_text(&text);
    for (int i = 0; i < k->narrays; i++)
        FILL(text.out, "* $name$kind: $type\n", { "name", k->array[i].name },
             { "kind", i < k->f->params.count ? "" : ", result" },
             { "type", type_text(k->m, &k->array[i].value->type) });
    return function_comment(k->m, row_title(k), close_text(&k->m->arena, &text));
}

static int parameters(const RowKernel *k, const char *const **list)
{
    const char **items = NEW_ARRAY(&k->m->arena, const char *, k->narrays + 1);
    int count = 0;
    for (int i = 0; i < k->narrays; i++)
        items[count++] = arena_text(&k->m->arena, "%s%s *%s%s", i < k->f->params.count ? "const " : "",
                                    element_type(k->array[i].value->type.dtype), k->array[i].shared ? "" : "restrict ",
                                    k->array[i].name);
    if (k->scratch)
        items[count++] = "float *restrict scratch";
    *list = items;
    return count;
}

/* Marks unused parameters, which are still passed. */
static void write_unread(const RowKernel *k, FILE *out)
{
    for (int i = 0; i < k->f->params.count; i++)
        if (!k->node[i].is_wanted)
            FILL(out, "(void)$name;\n", { "name", k->array[i].name });
}

FunctionText row_kernel_text(Module *m, const Func *kernel, const Op *call, ShardOffsets *offsets, bool anonymous)
{
    RowKernel *k = plan_row_kernel(m, kernel, call);
    k->is_anonymous = anonymous;
    k->offsets = offsets;
    plan_arrays(k);
    name_values(k);
    for (int i = 0; i < k->nregions; i++)
        plan_loops(k, &k->region[i]);
    plan_kept(k);
    k->depth = 1;
    Text body;
    open_text(&body);
    mark_wanted(k, NULL);
    write_unread(k, body.out);
    write_scalars(k, body.out);
    for (int i = 0; i < k->nregions; i++)
        write_region(k, k->region_order[i], body.out);
    FunctionText text = { .comment = anonymous ? NULL : row_comment(k), .body = close_text(&m->arena, &body) };
    text.nparameters = parameters(k, &text.parameter);
    return text;
}

Statement row_kernel_call(Module *m, const Func *kernel, const char *name, const char *const operand[],
                          const char *scratch)
{
    int count = kernel->params.count + kernel->results.count;
    const char **items = NEW_ARRAY(&m->arena, const char *, count + 1);
    for (int i = 0; i < count; i++)
        items[i] = operand[i];
    if (row_kernel_scratch(m, kernel))
        items[count++] = scratch;
    return (Statement){ .function = name, .count = count, .operand = items };
}
