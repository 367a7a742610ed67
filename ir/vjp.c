/* vjp.c -- the gradients that do not fit into a row of ops.def.
 *
 * Gradients here ignore broadcasting, dtypes and memory order: autodiff adjusts dx[i] to operand i, summing over extra
 * dims and broadcasting over missing ones.  An operand that has no gradient is left NULL.
 */
#include "operands.h"
#include "ranks.h"
#include "roles.h"
#include "term.h"

#define VJP(name)                                                                                                      \
    void vjp_##name(Builder *b, const Op *op, Value *const dy[], Value *dx[]);                                         \
    void vjp_##name(Builder *b, const Op *op, Value *const dy[], Value *dx[])

#define A (arg(op, 0))
#define B (arg(op, 1))
#define Y (result(op))

/* The gradients in the row of a MAP. */
VJP(by_text)
{
    Binding names = { 0 };
    names.value['a' - 'a'] = A;
    names.value['b' - 'a'] = op->args.count > 1 ? B : NULL;
    names.value['c' - 'a'] = op->args.count > 2 ? arg(op, 2) : NULL;
    names.value['y' - 'a'] = Y;
    names.value['d' - 'a'] = dy[0];
    for (int i = 0; i < op->args.count; i++)
        if (info(op)->gradient[i] && is_float(arg(op, i)->type.dtype))
            dx[i] = build_term(b, read_term(&b->module->arena, info(op)->gradient[i]), &names);
}

/* Constants, indices, calls (handled by autodiff), and ops that occur only in gradients. */
VJP(nothing) {}

/* y = a, in another layout */
VJP(identity) { dx[0] = dy[0]; }

/* y = a, on another stage: dy goes back */
VJP(send) { dx[0] = BUILD(b, OP_send, (Attrs){ .on = A->type.on }, dy[0]); }

/* y = a on other ranks: dy on the ranks of a; if several stages hold y, dy is a sum that is pending over them */
VJP(reshard)
{
    const RankSet on = A->type.on;
    if (same_dims(&A->type, &Y->type) && same_ranks(on, Y->type.on)) {
        dx[0] = dy[0];
        return;
    }
    Attrs back = { .on = on };
    back.dims.count = A->type.rank;
    for (int i = 0; i < A->type.rank; i++)
        back.dims.dim[i] = A->type.dim[i];
    back.axis = is_one_rank(Y->type.on) && !is_one_rank(on) ? 1u << Y->type.on.axis : 0;
    dx[0] = BUILD(b, OP_reshard, back, dy[0]);
}

/* y = sum a over d: dy is spread over d, by name */
VJP(sum) { dx[0] = dy[0]; }

/* The dims that `x` and `y` share, but for those in `without`. */
static Names shared_dims(const Type *x, const Type *y, const Names *without)
{
    Names names = { 0 };
    for (int i = 0; i < x->rank; i++)
        if (find_dim(y, x->dim[i].name) >= 0 && !has_name(without, x->dim[i].name))
            add_name(&names, x->dim[i].name);
    return names;
}

/* The gradient of one factor: the product of dy and the other factor, summed over all dims that the factor lacks, in
 * the memory order of the factor.  It is a product of 8 bits if `op` is. */
static Value *factor_gradient(Builder *b, const Op *op, Value *dy, Value *other, Value *factor)
{
    enum { OTHER = 1 };
    Names own = dim_names(&factor->type);
    Attrs attrs = { .over = shared_dims(&dy->type, &other->type, &own), .order = own, .fp8 = op->attrs.fp8 };
    Value *gradient = BUILD(b, OP_dot, attrs, dy, other);
    const bool is_weight = op->attrs.across && find_dim(&other->type, op->attrs.across) >= 0;
    if (is_weight)
        gradient->def->attrs.across = free_dim(gradient->def, OTHER);
    return gradient;
}

/* y = dot a b over d:  da = dot dy b over what only b has, and the same for b */
VJP(dot)
{
    dx[0] = factor_gradient(b, op, dy[0], B, A);
    dx[1] = factor_gradient(b, op, dy[0], A, B);
}

/* y = the largest of a over d: dy is divided equally among the elements equal to the maximum.  For bf16 and f16, one
 * kernel may have read the elements before rounding and another one after: both sides are rounded, so that at least one
 * element is equal. */
VJP(extreme)
{
    DType dtype = A->type.dtype;
    Value *equal = BUILD(b, OP_eq, NO_ATTRS, build_rounded(b, dtype, A), build_rounded(b, dtype, Y));
    Value *is = BUILD(b, OP_cast, (Attrs){ .dtype = intern_text(b->module, "f32") }, equal);
    Value *count = BUILD(b, OP_sum, (Attrs){ .over = op->attrs.over }, is);
    dx[0] = BUILD(b, OP_mul, NO_ATTRS, is, BUILD(b, OP_div, NO_ATTRS, dy[0], count));
}

/* y = dropout a: the same mask again */
VJP(dropout) { dx[0] = BUILD(b, OP_dropout, op->attrs, dy[0], arg(op, 1), arg(op, 2)); }

VJP(rename)
{
    Attrs attrs = { .dim = op->attrs.to, .to = op->attrs.dim };
    dx[0] = BUILD(b, OP_rename, attrs, dy[0]);
}

static Dims one_dim(Dim dim) { return (Dims){ .count = 1, .dim = { dim } }; }

static Dim dim_of(const Value *value, Name name) { return value->type.dim[find_dim(&value->type, name)]; }

/* y = a at one element of d: the rest of da is zero */
VJP(slice)
{
    Attrs attrs = { .dims = one_dim(dim_of(A, op->attrs.dim)), .index = op->attrs.index };
    dx[0] = BUILD(b, OP_pad, attrs, dy[0]);
}

/* y = a range of a along d */
VJP(part)
{
    Attrs attrs = { .dim = op->attrs.dims.dim[0].name,
                    .dims = one_dim(dim_of(A, op->attrs.dim)),
                    .index = op->attrs.index };
    dx[0] = BUILD(b, OP_pad, attrs, dy[0]);
}

VJP(split)
{
    Attrs attrs = { .dims = one_dim(dim_of(A, op->attrs.dim)) };
    for (int i = 0; i < op->attrs.dims.count; i++)
        add_name(&attrs.over, op->attrs.dims.dim[i].name);
    dx[0] = BUILD(b, OP_merge, attrs, build_like(b, dy[0], &Y->type));
}

VJP(merge)
{
    Attrs attrs = { .dim = op->attrs.dims.dim[0].name };
    for (int i = 0; i < op->attrs.over.count; i++)
        attrs.dims.dim[attrs.dims.count++] = dim_of(A, op->attrs.over.name[i]);
    dx[0] = BUILD(b, OP_split, attrs, dy[0]);
}

/* y = zeros around a: the range of dy where a is */
VJP(pad)
{
    const Dim *to = &op->attrs.dims.dim[0];
    Attrs attrs = { .dim = to->name, .index = op->attrs.index };
    if (op->attrs.dim)
        attrs.dims = one_dim(dim_of(A, op->attrs.dim));
    dx[0] = BUILD(b, op->attrs.dim ? OP_part : OP_slice, attrs, dy[0]);
}

/* y = the operands, one after the other along d */
VJP(concat)
{
    Name d = op->attrs.dims.dim[0].name;
    Attrs attrs = { .dim = d };
    for (int i = 0; i < op->args.count; i++) {
        attrs.dims = one_dim(dim_of(arg(op, i), d));
        dx[i] = BUILD(b, OP_part, attrs, dy[0]);
        attrs.index += dim_of(arg(op, i), d).size;
    }
}

/* y = rows of a: each row of dy is added to the row that it came from */
VJP(gather)
{
    Attrs attrs = { .dims = one_dim(dim_of(A, op->attrs.dim)) };
    for (int i = 0; i < B->type.rank; i++)
        if (is_dim_of_index_alone(&A->type, &B->type.dim[i], op->attrs.dim))
            add_name(&attrs.over, B->type.dim[i].name);
    dx[0] = BUILD(b, OP_scatter_add, attrs, dy[0], B);
}

/* y = sums of rows of a, and c: each row gets what became of its sum */
VJP(scatter_add)
{
    Value *rows = BUILD(b, OP_gather, (Attrs){ .dim = op->attrs.dims.dim[0].name }, dy[0], B);
    const Attrs like = { .dtype = intern_text(b->module, dtype_name[A->type.dtype]) };
    dx[0] = rows->type.dtype == A->type.dtype ? rows : BUILD(b, OP_cast, like, rows);
    if (sum_before(op))
        dx[2] = dy[0];
}

/* y = rows of a by expert: dy by choice, summed over the choices that share a row */
VJP(dispatch)
{
    const Dims *to = &op->attrs.dims;
    const Names shared = dims_lacking(&B->type, &A->type);
    dx[0] = BUILD(b, OP_combine, ((Attrs){ .dim = to->dim[0].name, .key = to->dim[1].name }), dy[0], B, arg(op, 2));
    dx[0] = shared.count ? BUILD(b, OP_sum, (Attrs){ .over = shared }, dx[0]) : dx[0];
}

/* What was broadcast over dims of `over`, and perhaps put in another order: x before that. */
static Value *before_broadcast(Value *x, const Names *over)
{
    const Op *def = x->def;
    if (def && def->kind == OP_reorder && !def->attrs.dims.count)
        def = arg(def, 0)->def;
    if (!def || def->kind != OP_broadcast)
        return x;
    for (int i = 0; i < def->attrs.dims.count; i++)
        if (!has_name(over, def->attrs.dims.dim[i].name))
            return x;
    return arg(def, 0);
}

/* y = rows of a by choice: dy by expert.  Of choices that are summed, dy is one row for all: it is not copied first. */
VJP(combine)
{
    const Dims back = { 2, { dim_of(A, op->attrs.dim), dim_of(A, op->attrs.key) } };
    const Attrs attrs = { .over = dims_lacking(&B->type, &A->type), .dims = back };
    Value *rows = build_rows(b, before_broadcast(dy[0], &attrs.over), arg(op, 2), &attrs.over);
    dx[0] = BUILD(b, OP_dispatch, attrs, rows, B, arg(op, 2));
}

VJP(attend)
{
    if (!dy[0])
        return;
    Value *lse = op->results.at[1], *operands[9] = { A, B, arg(op, 2), Y, lse, dy[0] };
    const int bias = operand_at(op, OPERAND_bias), sinks = operand_at(op, OPERAND_sinks);
    int count = 6;
    for (int i = 3; i < op->args.count; i++)
        if (i != sinks)
            operands[count++] = arg(op, i);
    Op *grad = build(b, OP_attend_grad, op->attrs, count, operands);
    for (int i = 0; i < 3; i++)
        dx[i] = grad->results.at[i];
    if (bias < 0 && sinks < 0)
        return;
    const Attrs f32 = { .dtype = intern_text(b->module, dtype_name[F32]) };
    Value *both = BUILD(b, OP_mul, NO_ATTRS, BUILD(b, OP_cast, f32, dy[0]), BUILD(b, OP_cast, f32, Y));
    Value *share = BUILD(b, OP_sum, ((Attrs){ .over = { 1, { op->attrs.feature } } }), both);
    operands[3] = share;
    if (bias >= 0)
        dx[bias] = build_op(b, OP_attend_bias_grad, op->attrs, count, operands);
    if (sinks >= 0) /* whose weight multiplies nothing */
        dx[sinks] = BUILD(b, OP_neg, NO_ATTRS,
                          BUILD(b, OP_mul, NO_ATTRS, BUILD(b, OP_lse_share, NO_ATTRS, arg(op, sinks), lse), share));
}

/* y = sums of a along d: an element is in the sums at and behind it */
VJP(cumsum)
{
    Attrs attrs = op->attrs;
    attrs.reverse = !attrs.reverse;
    dx[0] = BUILD(b, OP_cumsum, attrs, dy[0]);
}

/* y = a, rotated: rotate back */
VJP(rope)
{
    Attrs attrs = op->attrs;
    attrs.inverse = !attrs.inverse;
    Value *operands[] = { dy[0], op->args.count > 1 ? B : NULL };
    dx[0] = build(b, OP_rope, attrs, op->args.count, operands)->results.at[0];
}

void (*const vjp_table[N_OPS])(Builder *, const Op *, Value *const dy[], Value *dx[]) = {
#define OP(name, args, res, family, over, roles, linear, traits, flops, infer, vjp) [OP_##name] = vjp_##vjp,
#include "ops.def"
};
