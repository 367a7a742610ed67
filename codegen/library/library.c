/* library.c -- functions that call the runtime's kernels for LIBRARY ops.
 *
 * A kernel is called with a constant shape and is inlined, so that the compiler folds the shape.
 */
#include "library.h"

#include <stdarg.h>
#include <stdio.h>

/* --- Layouts ------------------------------------------------------------------------------------- */

char *refuse_layout(const Operands *o, const char *format, ...)
{
    va_list args;
    if (o->asks)
        return NULL;
    va_start(args, format);
    char text[200];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_at(o->m->diags, (Where){ .at = o->op->loc }, "the C back end does not support this %s: %s",
                    info(o->op)->name, text),
           NULL;
}

int64_t size_along(const Operands *o, const Value *value, Name dim)
{
    int at = find_dim(&value->type, dim);
    return at < 0 ? 1 : loop_size(o->m, &value->type.dim[at]);
}

void check_operand(const Operands *o, int operand, const Access *access)
{
    const Value *value = o->value[operand];
    if (!o->asks)
        access_stays_inside(o->m, o->op, value->name, &value->type, value->storage, access);
}

static DimGroup one_dim(const Operands *o, Name dim)
{
    DimGroup group = { .size = 1 };
    for (int i = 0; i < o->count; i++) {
        int64_t size = size_along(o, o->value[i], dim);
        group.size = size > group.size ? size : group.size;
        group.stride[i] = stride_of(o->value[i], dim);
    }
    return group;
}

static bool follows(const Operands *o, const DimGroup *outer, const DimGroup *inner)
{
    for (int i = 0; i < o->count; i++)
        if (outer->stride[i] != inner->stride[i] * inner->size)
            return false;
    return true;
}

bool find_groups(const Operands *o, const Names *dims, const char *what, int room, DimGroup groups[])
{
    int count = 0;
    for (int i = 0; i < room; i++)
        groups[i] = (DimGroup){ .size = 1 };
    for (int i = 0; i < dims->count; i++) {
        DimGroup next = one_dim(o, dims->name[i]);
        if (next.size == 1)
            continue;
        if (count && follows(o, &groups[count - 1], &next)) {
            next.size *= groups[count - 1].size;
            groups[count - 1] = next;
        } else if (count == room) {
            return refuse_layout(o, "its %s dims are more than %d in memory", what, room);
        } else {
            groups[count++] = next;
        }
    }
    return true;
}

/* --- Functions ------------------------------------------------------------------------------------- */

static const struct {
    OpKind kind;
    CallText *call;
    OperandOrder *order;
} kernels[] = {
    { OP_pad, call_pad, order_own },
    { OP_concat, call_concat, order_own },
    { OP_gather, call_gather, order_gather },
    { OP_scatter_add, call_scatter_add, order_scatter_add },
    { OP_rope, call_rope, order_rope },
    { OP_cumsum, call_cumulative, order_cumulative },
    { OP_cummax, call_cumulative, order_cumulative },
    { OP_top_k, call_top_k, order_own },
    { OP_place, call_place, order_place },
    { OP_dispatch, call_dispatch, order_route },
    { OP_combine, call_combine, order_route },
    { OP_collect, call_collect, order_route },
    { OP_attend, call_attend, order_attend },
    { OP_attend_grad, call_attend_grad, order_attend },
    { OP_attend_bias_grad, call_attend_bias_grad, order_attend },
};

static int find_kernel(const Op *op)
{
    for (int i = 0; i < (int)(sizeof kernels / sizeof *kernels); i++)
        if (kernels[i].kind == op->kind)
            return i;
    return -1;
}

const Value *operand_named(const Operands *o, OperandName name)
{
    const int at = operand_at(o->op, name);
    return at < 0 ? NULL : o->value[at];
}

bool find_operands(Module *m, const Op *op, Operands *o)
{
    *o = (Operands){ .m = m, .op = op, .variant = "", .more = "" };
    if (find_kernel(op) < 0)
        return error_at(m->diags, (Where){ .at = op->loc }, "the C back end has no kernel for %s", info(op)->name),
               false;
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        o->value[o->count++] = arg_or_result(op, i);
        o->is[i] = operand_name(op, i);
        o->name[i] = operand_text[o->is[i]];
        if (!o->value[i]->storage)
            return refuse_layout(o, "internal: '%s' has no storage", o->value[i]->name);
    }
    return true;
}

char *library_body(const Operands *o) { return kernels[find_kernel(o->op)].call(o); }
Names library_order(const Operands *o, int operand) { return kernels[find_kernel(o->op)].order(o, operand); }

int library_parameters(const Operands *o, bool has_scratch, const char *const **list)
{
    const char **items = NEW_ARRAY(&o->m->arena, const char *, MAX_OPERANDS + 1);
    int count = 0;
    for (; count < o->count; count++)
        items[count] = arena_text(&o->m->arena, "%s%s *%s", count < o->op->args.count ? "const " : "",
                                  element_type(o->value[count]->type.dtype), o->name[count]);
    if (has_scratch)
        items[count++] = "float *scratch";
    *list = items;
    return count;
}

char *library_comment(const Operands *o)
{
    const Op *op = o->op;
    Text text;
    open_text(&text);
    for (int i = 0; i < o->count; i++)
        FILL(text.out, "* $name$kind: $type\n", { "name", o->name[i] },
             { "kind", i < op->args.count ? "" : ", result" }, { "type", type_text(o->m, &o->value[i]->type) });
    const char *title = arena_text(&o->m->arena, "%s%s%s: %s", op->path ? op->path : info(op)->name,
                                   op->where ? ", " : "", op->where ? op->where : "", info(op)->name);
    return function_comment(o->m, comment_text(o->m, title), close_text(&o->m->arena, &text));
}

FunctionText library_kernel_text(Module *m, const Op *op, ShardOffsets *offsets)
{
    Operands o;
    int errors = m->diags->errors;
    const bool found = find_operands(m, op, &o);
    o.offsets = offsets;
    char *body = found ? library_body(&o) : NULL;
    if (!body || m->diags->errors > errors)
        return (FunctionText){ .body = NULL };
    FunctionText text = { .comment = library_comment(&o), .body = body };
    text.nparameters = library_parameters(&o, library_scratch(m, op) > 0, &text.parameter);
    return text;
}

int64_t library_scratch(Module *m, const Op *op)
{
    if (op->kind != OP_attend_grad)
        return 0;
    Type dq = arg(op, 0)->type;
    dq.dtype = F32;
    return local_bytes(m, &dq); /* see rt_attend_grad_scratch */
}
