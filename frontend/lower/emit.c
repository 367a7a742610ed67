/* emit.c -- builds ops with source locations; reports results that no op may have. */
#include "emit.h"
#include "sizes.h"

/* Rejects more elements than any machine can hold: later code may multiply sizes without overflow checks. */
bool too_large(Lower *l, const Type *type, Loc at)
{
    double count = 1;
    for (int i = 0; i < type->rank; i++)
        count *= (double)type->dim[i].padded;
    if (count > (double)MAX_ELEMENTS)
        complain(l, (Where){ .at = at }, "%s has %.3g elements, which no machine can hold", dims_text(l, type), count);
    return count > (double)MAX_ELEMENTS;
}

/* Residuals and operands of an iteration get one more dim for each enclosing repeat. */
bool too_many_dims(Lower *l, const Type *type, Loc at)
{
    int repeats = 0;
    for (const Body *frame = l->frame; frame && frame->outer; frame = frame->outer)
        repeats++;
    if (repeats == 0 || type->rank + repeats <= MAX_RANK)
        return false;
    if (repeats > MAX_RANK)
        return complain(
                   l, (Where){ .at = at },
                   "at most %d repeats can be inside of each other, not %d: each adds a dim that counts its copies",
                   MAX_RANK, repeats),
               true;
    return complain(l, (Where){ .at = at },
                    "inside of %d repeat%s a tensor has at most %d dims, not %s: each repeat adds one that counts its "
                    "copies",
                    repeats, repeats == 1 ? "" : "s", MAX_RANK - repeats, dims_text(l, type)),
           true;
}

/* In a scan, tensors have no dim of its name: they could not be read by place, or stacked. */
static bool has_scanned_dim(Lower *l, const Type *type, Loc at)
{
    for (int i = 0; i < type->rank; i++)
        if (scan_along(l, type->dim[i].name))
            return complain(l, (Where){ .at = at, .help = "give it another name, with a dim of its own" },
                            "inside of 'scan %s' no tensor has the dim '%s': each is its slice at one position",
                            type->dim[i].name, type->dim[i].name),
                   true;
    return false;
}

/* Have they more dims together than a tensor may have? */
static bool exceeds_rank(int nargs, Value *const args[])
{
    Names all = { 0 };
    for (int i = 0; i < nargs; i++)
        for (int j = 0; j < args[i]->type.rank; j++)
            if (!has_name(&all, args[i]->type.dim[j].name)) {
                if (all.count == MAX_RANK)
                    return true;
                add_name(&all, args[i]->type.dim[j].name);
            }
    return false;
}

static bool reported_here(const Lower *l)
{
    for (const Complaint *r = l->reports.reported; r; r = r->next)
        if (r->at.begin == l->b.loc.begin)
            return true;
    return false;
}

Op *emit_op(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    for (int i = 0; i < nargs; i++)
        if (!args[i])
            return NULL;
    if (l->role == MODEL && reported_here(l))
        return NULL; /* another instance of the block has an error here; so has this one */
    if (l->matrix && exceeds_rank(nargs, args)) {
        l->matrix->refused = true; /* reported where the optimizer is chosen */
        return NULL;
    }
    Op *op = try_build(&l->b, kind, attrs, nargs, args);
    for (int i = 0; op && i < op->results.count; i++) {
        const Type *type = &op->results.at[i]->type;
        if (too_large(l, type, l->b.loc) || too_many_dims(l, type, l->b.loc) || has_scanned_dim(l, type, l->b.loc))
            return NULL;
    }
    return op;
}

Value *emit(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    Op *op = emit_op(l, kind, attrs, nargs, args);
    return op ? result(op) : NULL;
}

Value *emit_number(Lower *l, double value, DType dtype)
{
    Attrs attrs = { .value = value, .dtype = dtype == F32 ? NULL : intern_text(l->m, dtype_name[dtype]) };
    return emit(l, OP_constant, attrs, 0, NULL);
}

/* In a scan along the dim, the number of the place: what the body has of the positions outside. */
Value *emit_iota(Lower *l, Dim dim)
{
    Body *scan = scan_along(l, dim.name), *here = l->frame;
    const Builder b = l->b;
    if (!scan)
        return emit(l, OP_iota, (Attrs){ .dims = { 1, { dim } } }, 0, NULL);
    l->frame = scan->outer;
    l->b = scan->around;
    Value *positions = emit_iota(l, dim);
    l->frame = here;
    l->b = b;
    return import_value(l, here, positions, scan->outer);
}

Value *emit_cast(Lower *l, Value *x, DType dtype)
{
    if (!x || x->type.dtype == dtype)
        return x;
    return EMIT(l, OP_cast, (Attrs){ .dtype = intern_text(l->m, dtype_name[dtype]) }, x);
}

/* Ranks without a row add zeros, which is possible only for numbers. */
Value *emit_gather(Lower *l, Value *x, Name dim, Value *index)
{
    const bool is_truth = x && x->type.dtype == BOOL;
    Value *rows = EMIT(l, OP_gather, (Attrs){ .dim = dim }, is_truth ? emit_cast(l, x, I32) : x, index);
    return is_truth ? emit_cast(l, rows, BOOL) : rows;
}

Value *emit_in_order(Lower *l, Value *x, Names order)
{
    bool is_so = true;
    for (int i = 0; x && i < x->type.rank; i++)
        is_so &= order.name[i] == x->type.dim[i].name;
    return is_so ? x : EMIT(l, OP_reorder, (Attrs){ .order = order }, x);
}

Value *emit_f32(Lower *l, Value *x)
{
    const bool is_number = x && x->def && info(x->def)->traits & WEAK;
    if (!x || x->type.dtype != F32 || is_number || l->m->train.precision <= PRECISION_FP32)
        return emit_cast(l, x, F32);
    return EMIT(l, OP_cast, (Attrs){ .dtype = intern_text(l->m, dtype_name[F32]) }, x);
}

Value *reorder(Lower *l, Value *value, const Type *like)
{
    Op *op = value ? value->def : NULL;
    if (!value || same_order(&value->type, like))
        return value;
    const Func *f = l->frame->func;
    if (op && op == f->last && index_of(&f->results, value) < 0 && op->kind == OP_dot && !op->attrs.order.count) {
        op->attrs.order = dim_names(like); /* it has no reader: the product can write that order itself */
        return infer_op(l->m, op, &value->type) ? value : NULL;
    }
    return EMIT(l, OP_reorder, (Attrs){ .order = dim_names(like) }, value);
}
