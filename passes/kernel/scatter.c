/* scatter.c -- adds rows to a sum in place, rather than to zeros that are added later:
 *
 *   %1 = scatter_add %rows, %index {...}                %3 = add %sum, %rest
 *   %2 = add %rest, %1                           =>     %4 = scatter_add %rows, %index, %3 {...}
 *   %4 = add %sum, %2
 *
 * The gradient of an embedding that is also the head is such a sum, and any embedding's over several micro-batches: the
 * rows of its tokens are a small part of the table, which would be cleared, written, and read again for the addition.
 */
#include "fuse.h"

#include "uses.h"

/* The operand of an addition that is the result of a scatter_add without other readers; -1: none. */
static int summed_operand(const Func *f, const Op *add)
{
    for (int i = 0; i < 2; i++) {
        const Op *rows = arg(add, i)->def;
        if (rows && info(rows)->traits & GOES_ON && uses_in(f, result(rows)) == 1 &&
            type_equal(&result(rows)->type, &result(add)->type) && type_equal(&arg(add, !i)->type, &result(add)->type))
            return i;
    }
    return -1;
}

static void add_rows_last(Module *m, Func *f, Op *add, int at)
{
    Op *rows = arg(add, at)->def;
    Builder b = builder_at(m, f, add), of_rows = builder_at(m, f, rows); /* a running sum has no line of its own */
    of_rows.before = add;
    Value *rest = arg(add, !at), *before = sum_before(rows);
    if (before)
        rest = build_like(&b, BUILD(&b, add->kind, NO_ATTRS, rest, before), &result(add)->type);
    Value *operands[3] = { arg(rows, 0), arg(rows, 1), rest };
    Value *made = build(&of_rows, rows->kind, rows->attrs, 3, operands)->results.at[0];
    made = build_like(&of_rows, made, &result(add)->type);
    made->name = result(add)->name;
    replace_uses(f, result(add), made);
    remove_op(f, add);
    const int next = before ? summed_operand(f, rest->def) : -1;
    if (next >= 0)
        add_rows_last(m, f, rest->def, next);
}

void add_rows_in_place(Module *m, Func *f)
{
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        const int at = is_addition(op) ? summed_operand(f, op) : -1;
        if (at >= 0)
            add_rows_last(m, f, op, at);
    }
}
