/* collect.c -- fuses rows that are picked for each choice of a token with their weighted sum:
 *
 *   %1 = combine %rows, %chosen, %place {dim=experts, key=slots}
 *   %2 = mul %1, %gate                                             =>   %3 = collect %rows, %chosen, %place, %gate
 *   %3 = sum %2 {over=choice}                                                {dim=experts, key=slots, over=choice}
 *
 * So no row is stored for each choice, and with weights none is read again.  If what is picked has another reader, a
 * backward pass for instance, it stays.
 */
#include "fuse.h"

#include "uses.h"

static bool picks_rows(const Op *op) { return op && info(op)->traits & COLLECTS; }

/* Of rows times weights: which operand are the weights?  -1: there are none. */
static int weight_of(const Op *product)
{
    if (!product || info(product)->linear != EACH || info(product)->family != POINTWISE ||
        result(product)->type.dtype != F32)
        return -1;
    for (int i = 0; i < 2; i++) {
        const Op *rows = arg(product, !i)->def;
        if (picks_rows(rows) && arg(product, i)->type.dtype == F32 &&
            !dims_lacking(&arg(product, i)->type, &arg(rows, 1)->type).count)
            return i;
    }
    return -1;
}

/* Are these dims of choices, and not of the rows? */
static bool are_choices(const Op *rows, const Names *over)
{
    bool good = over->count > 0;
    for (int i = 0; i < over->count && good; i++)
        good = find_dim(&arg(rows, 1)->type, over->name[i]) >= 0 && find_dim(&arg(rows, 0)->type, over->name[i]) < 0;
    return good;
}

static void collect(Module *m, Func *f, Op *sum)
{
    const Op *before = arg(sum, 0)->def;
    const int weight = weight_of(before);
    const Op *rows = weight < 0 ? before : arg(before, !weight)->def;
    if (!picks_rows(rows) || !are_choices(rows, &sum->attrs.over) || uses_in(f, result(before)) > 1 ||
        uses_in(f, result(rows)) > 1)
        return;
    Builder b = builder_at(m, f, sum);
    Attrs attrs = rows->attrs;
    attrs.over = sum->attrs.over;
    Value *operands[4] = { arg(rows, 0), arg(rows, 1), arg(rows, 2), weight < 0 ? NULL : arg(before, weight) };
    Value *made = build(&b, OP_collect, attrs, weight < 0 ? 3 : 4, operands)->results.at[0];
    made = build_like(&b, made, &result(sum)->type);
    made->name = result(sum)->name;
    replace_uses(f, result(sum), made);
    remove_op(f, sum);
}

void collect_rows(Module *m, Func *f)
{
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        if (info(op)->family == REDUCTION && info(op)->over == SUM)
            collect(m, f, op);
    }
}
