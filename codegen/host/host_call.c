/* host_call.c -- the statements that run kernels, products and library ops, with their rows in the table of kernels. */
#include "blocks.h"
#include "cost/cost.h"
#include "filled.h"
#include "host_parts.h"
#include "storage.h"

#include <string.h>

/* --- The table of kernels ------------------------------------------------------------------ */

static int add_row(Host *h, KernelRow row)
{
    GROW(&h->m->arena, h->row, h->nrows, h->row_room);
    h->row[h->nrows] = row;
    return h->nrows++;
}

/* The minimum of bytes that a call reads and writes: of a gather's table only the picked rows. */
static double call_bytes(const Module *m, const Op *op)
{
    double bytes = 0;
    if (op->kind == OP_gather || op->kind == OP_scatter_add) {
        const Value *picked = op->kind == OP_gather ? result(op) : arg(op, 0);
        return 2.0 * (double)local_bytes(m, &picked->type) + (double)local_bytes(m, &arg(op, 1)->type);
    }
    const Func *rounding = kernel_rounding(m, op);
    for (int i = 0; i < op->args.count; i++)
        bytes += is_read_instead(rounding, i) ? 0 : (double)local_bytes(m, &arg(op, i)->type);
    for (int i = 0; i < op->results.count; i++)
        bytes += (double)local_bytes(m, &op->results.at[i]->type);
    return bytes;
}

/* The FLOPs of one rank. */
static double flops_of(Module *m, const Op *op)
{
    const double whole = op_flops(m, op);
    return whole > 0 ? filled_flops(m, op) * op_work(m, NULL, op).rank / whole : 0;
}

static double kernel_flops(Module *m, const Func *kernel)
{
    double flops = 0;
    for (const Op *op = kernel->first; op; op = op->next)
        flops += flops_of(m, op);
    return flops;
}

/* Does it write state? */
static bool updates_state(const FuncText *t, const Op *op)
{
    for (int i = 0; i < op->results.count && t->f->role == STEP; i++)
        if (op->results.at[i]->storage->at < t->h->state_bytes)
            return true;
    return false;
}

/* The ops that the statement of this one runs; none: an earlier one's does. */
static int group_of(const FuncText *t, const Op *const *op, const Op *const **group)
{
    const Func *kernel = called_by(t->h->m, *op);
    const bool is_row = kernel ? kernel->role == KERNEL && !is_product_kernel(kernel) : info(*op)->family == LIBRARY;
    *group = op;
    return is_row ? t->h->dialect->group(t->h, op, group) : 1;
}

bool changes_state(const FuncText *t, const Op *op)
{
    const Op *const *group;
    bool changes = false;
    for (int i = info(op)->family == VIEW || lies_in_place(t->h->m, op) ? 0 : group_of(t, &op, &group); i > 0; i--)
        changes |= updates_state(t, group[i - 1]);
    return changes;
}

static int add_call_row(FuncText *t, const Op *op, const char *kind, double flops)
{
    return add_row(t->h, (KernelRow){ .name = op->path ? op->path : info(op)->name,
                                      .where = op->where ? op->where : "",
                                      .kind = kind,
                                      .flops = flops,
                                      .bytes = call_bytes(t->h->m, op) });
}

enum { INDENT = 4 };

/* --- RT_RUN -------------------------------------------------------------------------------- */

static char *on_one_line(Arena *arena, const Statement *s)
{
    char *line = arena_text(arena, "%s(", s->function);
    for (int i = 0; i < s->count; i++)
        line = arena_text(arena, "%s%s%s", line, i ? ", " : "", s->operand[i]);
    return arena_text(arena, "%s)", line);
}

/* RT_RUN(rt, 17, f(a, b)); if that is too long for a line, f(a, b) is on a separate line: aligned with `rt`, or further
 * left if it then fits into one. */
static char *traced_call(Module *m, int row, const Statement *call, int indent)
{
    enum { UNDER = 7 };
    const int width = 120 - indent;
    Arena *arena = &m->arena;
    char *line = on_one_line(arena, call);
    int head = (int)strlen(arena_text(arena, "RT_RUN(rt, %d, ", row)), length = (int)strlen(line) + (int)strlen(");");
    if (head + length <= width)
        return arena_text(arena, "RT_RUN(rt, %d, %s);\n", row, line);
    if (UNDER + length > width && 4 + length <= width)
        return arena_text(arena, "RT_RUN(\n    rt, %d,\n    %s);\n", row, line);
    return FILLED(arena, "RT_RUN(rt, $row,\n       $call\n", { "row", arena_text(arena, "%d", row) },
                  { "call", wrapped_list(m, arena_text(arena, "%s(", call->function), call->count, call->operand, "));",
                                         indent + UNDER) });
}

/* Loops around a call do not fit into a macro's argument. */
static char *traced_block(Module *m, int row, const Statement *block)
{
    char *number = arena_text(&m->arena, "%d", row);
    return FILLED(
        &m->arena,
        "if (rt_tracing)\n    rt_trace_begin(rt, $row);\n$block\nif (rt_tracing)\n    rt_trace_end(rt, $row);\n",
        { "row", number }, { "block", statement_text(m, block) });
}

static char *under_condition(Module *m, const char *condition, const char *statement)
{
    return FILLED(&m->arena, "if ($condition)\n    $statement\n", { "condition", condition },
                  { "statement", statement });
}

/* condition: C; NULL: always. */
static void write_traced(FuncText *t, const Op *op, int row, Statement call, const char *condition)
{
    Module *m = t->h->m;
    const char *text =
        call.nloops ? traced_block(m, row, &call) : traced_call(m, row, &call, condition ? 2 * INDENT : INDENT);
    write_statement(t, place_text(m, op), condition ? under_condition(m, condition, text) : text);
}

/* --- Calls --------------------------------------------------------------------------------- */

const char **operands_of(FuncText *t, const Op *op)
{
    const char **operands = NEW_ARRAY(&t->h->m->arena, const char *, op->args.count + op->results.count + 1);
    for (int i = 0; i < op->args.count + op->results.count; i++)
        operands[i] = pointer_to(t, arg_or_result(op, i));
    return operands;
}

/* The operands of the product. */
static const char **operands_of_product(FuncText *t, const Op *op, const Product *p)
{
    const char **operands = NEW_ARRAY(&t->h->m->arena, const char *, op->args.count + op->results.count + 1);
    const char *names[MAX_PRODUCT_OPERANDS];
    int at[MAX_PRODUCT_OPERANDS + 1], count = product_operands(p, op, names, at);
    if (p->copied >= 0)
        at[count++] = p->copied;
    for (int i = 0; i < count; i++)
        operands[at[i]] = pointer_to(t, arg_or_result(op, at[i]));
    return operands;
}

/* Puts what the product adds to into C, unless the target's library reads it where it is. */
static void write_copy(FuncText *t, const Op *op, Product *p, const char *const operands[])
{
    if (p->copied < 0 || (t->h->dialect->adds_apart && !p->naive && !p->shape.counted))
        return;
    write_statement(t, place_text(t->h->m, op),
                    t->h->dialect->copy(t->h->m, operands[op->args.count + p->c], operands[p->copied],
                                        own_bytes(t, &op->results.at[p->c]->type)));
    p->copied = -1;
}

/* Its operands are those before rounding where it rounds them itself. */
static void read_either(FuncText *t, const Op *op, const Product *p, int id, const char *operands[])
{
    const int at[] = { p->a, p->b };
    for (int i = 0; i < 2; i++)
        if (p->from[i] != at[i])
            operands[at[i]] = arena_text(&t->h->m->arena, "rt_either(rt, %d, %s, %s)", id,
                                         pointer_to(t, arg(op, p->from[i])), operands[at[i]]);
}

static double multiplications(const Product *p)
{
    const RtProductShape *s = &p->shape;
    double count = (double)s->m * (double)s->n * (double)s->k * (double)s->batch;
    for (int i = 0; i < p->nloops; i++)
        count *= (double)p->loop[i].count;
    return count;
}

static void write_products_of(FuncText *t, const Op *op, const Func *kernel)
{
    Module *m = t->h->m;
    Product *products;
    int count = plan_products(m, kernel, op, &products);
    const double flops = kernel_flops(m, kernel);
    double all = 0;
    for (int i = 0; i < count; i++)
        all += multiplications(&products[i]);
    for (int i = 0; i < count; i++) {
        Product *p = &products[i];
        const double share = all > 0 ? multiplications(p) / all : 1.0 / count;
        int row = add_call_row(t, op, "product", flops * share);
        const char **operands = operands_of_product(t, op, p);
        const int id = product_number(t, op, i, p);
        if (p->shape.unrounded)
            read_either(t, op, p, id, operands);
        write_copy(t, op, p, operands);
        Statement call =
            p->naive ? t->h->dialect->naive_product(t, op, i, p, operands) : product_call(m, p, id, op, operands);
        write_traced(t, op, row, call, NULL);
    }
}

void write_call(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    const Func *kernel = called_by(m, op);
    if (kernel && is_product_kernel(kernel)) {
        write_products_of(t, op, kernel);
        return;
    }
    const Op *const *group;
    int count = group_of(t, &op, &group);
    if (count == 0)
        return;
    Statement call = t->h->dialect->kernel(t, op);
    bool updates = false;
    for (int i = 0; i < count; i++)
        updates |= updates_state(t, group[i]);
    int row = add_call_row(t, op, !kernel ? info(op)->name : updates ? "update" : "fused", 0);
    t->h->row[row].bytes = 0;
    for (int i = 0; i < count; i++) {
        kernel = called_by(m, group[i]);
        t->h->row[row].flops += kernel ? kernel_flops(m, kernel) : flops_of(m, group[i]);
        t->h->row[row].bytes += call_bytes(m, group[i]);
    }
    write_traced(t, op, row, call, rounding_condition(t, group, count));
}
