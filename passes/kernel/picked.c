/* picked.c -- what an index picks from a long row waits for no other pass over the row.
 *
 *   %z = sub %x, %most
 *   %is = eq %label, %places                      %own = where %is, %x, 0
 *   %picked = where %is, %z, 0             =>     %sum = sum %own {over=d}
 *   %y = sum %picked {over=d}                     %y = where (0 <= %label < d), (%sum - %most), 0
 *
 * If %most is a reduction of the same row, %y takes a pass over the row after that which finds %most.  At most one
 * element is picked, so the number of the row may as well be subtracted behind the sum, with the same bits.  Then a
 * kernel of a cross-entropy adds up what it needs in the one pass that finds the maximum (codegen/kernel/phases.c).
 * Targets that keep the row read it once anyway.
 */
#include "fuse.h"
#include "simplify/cleanup.h"
#include "target.h"

typedef struct {
    Op *sum;
    Value *is, *label; /* label == place */
    Value *x, *of_row; /* of x - of_row */
} Pick;

/* places < number */
static bool is_inside(const Value *is, const Dim *dim)
{
    const Op *op = is->def && is->def->kind == OP_lt ? is->def : NULL, *places = op ? arg(op, 0)->def : NULL;
    return places && places->kind == OP_iota && result(places)->type.dim[0].name == dim->name &&
           is_any_number(arg(op, 1)) && arg(op, 1)->def->attrs.value >= (double)dim->size;
}

/* The value that is made 0 in the padding of the dim, where no label is. */
static const Value *with_padding(const Value *x, Name dim)
{
    const Op *op = x->def;
    const int at = find_dim(&x->type, dim);
    const bool is_cut =
        op && at >= 0 && info(op)->traits & CHOOSES && is_zeros(arg(op, 2)) && is_inside(arg(op, 0), &x->type.dim[at]);
    return is_cut ? arg(op, 1) : x;
}

/* What it compares with places along the dim, if that is one number for all of these; else NULL. */
static Value *label_of(const Value *is, Name dim)
{
    const Op *op = is->def && is->def->kind == OP_eq ? is->def : NULL;
    for (int side = 0; op && side < 2; side++) {
        const Op *places = arg(op, side)->def;
        if (places && places->kind == OP_iota && result(places)->type.dim[0].name == dim &&
            find_dim(&arg(op, !side)->type, dim) < 0)
            return arg(op, !side);
    }
    return NULL;
}

static bool is_reduced(const Value *value)
{
    const Op *op = value_before_casts(value)->def;
    return op && info(op)->family == REDUCTION;
}

static bool is_long(const Module *m, const Value *x, Name dim)
{
    const Type *type = &value_before_casts(x)->type;
    const int at = find_dim(type, dim);
    return at >= 0 && m->target->kept_row && !type->dim[at].split.count &&
           local_size(m, &type->dim[at]) * dtype_bytes(type->dtype) > m->target->kept_row;
}

static bool find_pick(const Module *m, Op *op, Pick *pick)
{
    if (info(op)->family != REDUCTION || info(op)->over != SUM || op->attrs.over.count != 1)
        return false;
    const Name dim = op->attrs.over.name[0];
    const Op *choice = with_padding(arg(op, 0), dim)->def;
    if (!choice || !(info(choice)->traits & CHOOSES) || !is_zeros(arg(choice, 2)))
        return false;
    const Op *below = arg(choice, 1)->def;
    if (!below || !is_difference(below) || result(below)->type.dtype != F32)
        return false;
    *pick = (Pick){ op, arg(choice, 0), label_of(arg(choice, 0), dim), arg(below, 0), arg(below, 1) };
    return pick->label && is_long(m, pick->x, dim) && is_reduced(pick->of_row) &&
           find_dim(&pick->of_row->type, dim) < 0;
}

static void pick_first(Module *m, Func *f, const Pick *pick)
{
    Builder b = builder_at(m, f, pick->sum);
    const Attrs over = { .over = pick->sum->attrs.over };
    Value *zero = build_number(&b, 0);
    const Type *row = &pick->x->type;
    const double size = (double)row->dim[find_dim(row, over.over.name[0])].size;
    Value *sum = BUILD(&b, OP_sum, over, BUILD(&b, OP_where, NO_ATTRS, pick->is, pick->x, zero));
    Value *is_place = BUILD(&b, OP_mul, NO_ATTRS, BUILD(&b, OP_ge, NO_ATTRS, pick->label, zero),
                            BUILD(&b, OP_lt, NO_ATTRS, pick->label, build_number(&b, size)));
    Value *y = BUILD(&b, OP_where, NO_ATTRS, is_place, BUILD(&b, OP_sub, NO_ATTRS, sum, pick->of_row), zero);
    y = build_like(&b, y, &result(pick->sum)->type);
    y->name = result(pick->sum)->name;
    replace_uses(f, result(pick->sum), y);
    remove_op(f, pick->sum);
}

void pick_from_long_rows(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next) {
        bool any = false;
        for (Op *op = f->first, *next; op && f->role == KERNEL; op = next) {
            Pick pick;
            next = op->next;
            if (!find_pick(m, op, &pick))
                continue;
            pick_first(m, f, &pick);
            any = true;
        }
        if (any)
            drop_dead(f);
    }
}
